"""Errors shown to the operator as one sentence, without a traceback."""

from __future__ import annotations

from tidings.server.problems import Problem


class NoJava(Problem):
    def __init__(self, detail: str) -> None:
        super().__init__(
            f"DynamoDB Local needs Java 17 or newer ({detail}); install it, or name another"
            " DynamoDB with --endpoint-url"
        )


class NoMaven(Problem):
    def __init__(self, detail: str) -> None:
        super().__init__(
            f"Maven is needed once to fetch DynamoDB Local ({detail}); install it, or name"
            " another DynamoDB with --endpoint-url"
        )


class WrongSum(Problem):
    def __init__(self, name: str, detail: str, wanted: str) -> None:
        super().__init__(
            f"what Maven brought is not the DynamoDB Local that was tested: {name} has the SHA-256"
            f" {detail}, not {wanted}; nothing was kept. Look at where your Maven fetches from"
        )


class NoFunctions(Problem):
    def __init__(self, where: str) -> None:
        super().__init__(
            f"the functions were not found at or above {where}; run from a checkout of the"
            " repository, or name their folder with --functions"
        )


class DataInUse(Problem):
    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder} is in use by another twin")


class EngineFailed(Problem):
    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"DynamoDB Local {what}; its output is in {log}")
