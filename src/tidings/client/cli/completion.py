"""`tidings completion`: the script that teaches a shell the commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class
from tidings.client.cli.main import EXIT_CODES, main


@click.command(epilog=EXIT_CODES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """
    Print the completion script of SHELL.

    \b
    Examples:
      tidings completion bash >> ~/.bashrc
      tidings completion zsh > "${fpath[1]}/_tidings"
      tidings completion fish > ~/.config/fish/completions/tidings.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(main, {}, "tidings", "_TIDINGS_COMPLETE").source())
