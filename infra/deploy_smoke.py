"""
`make deploy-smoke`: the real CDK command line deploys the dev stage onto MiniStack, and it works.

Then the conformance suite runs against it. What agreement with an emulator is worth, and where this
one differs from AWS, is in docs/EMULATORS.md.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from infra import build_layers, cdk_cli, emulator, node, settings, smoke, stage_on_emulator, synth
from infra.paths import BUILD, ROOT

STAGE = "dev"
# Cases of the conformance suite that cannot hold here, and why.
NOT_HERE = {
    "4.6-path-slash": "the emulator takes a path with a slash at its end for the one without",
    "8.2-malformed-ws-deep": "the emulator's gateway cuts a connection over deeply nested JSON",
    "8.6-does-not-read-ws": "the emulator queues without end for a client that does not read",
}
CONFORMANCE = ROOT / "tests" / "conformance"

_TOLD = (
    node.NodeMissing,
    build_layers.LayerNotBuilt,
    synth.SynthFailed,
    emulator.EmulatorFailed,
    cdk_cli.CdkFailed,
    stage_on_emulator.NotUp,
    smoke.SmokeFailed,
)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # leaves no process behind
    try:
        sys.exit(_deploy_and_try())
    except _TOLD as problem:
        sys.exit(str(problem))


def _deploy_and_try() -> int:
    folder, started = BUILD / "smoke", time.monotonic()
    (stage,) = settings.chosen(STAGE)
    with emulator.running(folder / "emulator") as aws:
        (template,) = synth.synth(folder / "cdk.out", stage=STAGE)
        stage_on_emulator.without_spark(template)
        stack = template.name.partition(".")[0]
        _say(started, f"synthesised {stack}")
        outputs = cdk_cli.deploy(
            template.parent,
            stack,
            account=emulator.ACCOUNT,
            region=emulator.REGION,
            aws=aws.environment,
        )
        _say(started, "cdk bootstrap and cdk deploy succeeded")
        with stage_on_emulator.served(stage, outputs, aws, folder) as found:
            for line in smoke.run(found.base_url, found.stream_url, found.sockets_url):
                _say(started, line)
            return _conformance(found)


def _conformance(found: stage_on_emulator.Addresses) -> int:
    if not list(CONFORMANCE.glob("test_*.py")):
        return 0
    command = [sys.executable, "-m", "pytest", "-q", str(CONFORMANCE)]
    command += [
        f"--base-url={found.base_url}",
        f"--stream-url={found.stream_url}",
        f"--ws-url={found.sockets_url}",
    ]
    command += ["--skip-rules=13.*=no resources are declared here"]
    law = f"{CONFORMANCE.relative_to(ROOT)}/test_conformance.py::test_law"
    command += [f"--deselect={law}[{case}]" for case in NOT_HERE]
    return subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, check=False).returncode


def _say(started: float, line: str) -> None:
    sys.stdout.write(f"{time.monotonic() - started:5.1f} s  {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
