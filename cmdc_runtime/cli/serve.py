"""``cmdc serve``: become the daemon."""

import os
import sys

import click


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Run the daemon in the foreground; ``cmdc serve --help`` lists its options.

    This process turns into the daemon: multiprocess would import a main module anew in every agent,
    and the daemon's own has nothing in it. -P keeps a folder named like the daemon from being it.
    """
    os.execv(sys.executable, [sys.executable, "-P", "-m", "supervisor", *arguments])  # noqa: S606 - our own module, no shell
