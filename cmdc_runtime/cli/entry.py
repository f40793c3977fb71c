"""``cmdc``: finds the command, runs it, and says in one line what went wrong.

Exit status: 0 done, 1 the agent or the call failed or the output cannot be written, 2 wrong usage,
3 no daemon, 130 interrupted.
Rules: a command's module is imported when it is used and loads what is slow (rich, the client)
inside its function; a ``CmdcError`` never shows a traceback. To add a command: its function in one
of the modules here, decorated with ``click.command``, and its row in ``COMMANDS``.
"""

import importlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from cmdc_runtime.cli.terminal import OutputLost, flush_output, give_up_output, open_streams, typed
from cmdc_runtime.errors import (
    CmdcError,
    DaemonUnavailable,
    InvalidOptions,
    InvalidText,
    InvalidTool,
)
from cmdc_runtime.lines import neutral, unbroken
from cmdc_runtime.plain import nearest
from cmdc_runtime.version import VERSION

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_DAEMON: Final = 3
EXIT_INTERRUPTED: Final = 130

_STATUSES: Final[Mapping[type[CmdcError], int]] = {
    DaemonUnavailable: EXIT_NO_DAEMON,
    InvalidOptions: EXIT_USAGE,
    InvalidText: EXIT_USAGE,
    InvalidTool: EXIT_USAGE,
}

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("daemon:serve", "Run the daemon, in the foreground or detached."),
    "shutdown": ("daemon:shutdown", "End the daemon; the next one goes on with its sessions."),
    "run": ("chat:run", "Run one prompt with a new agent and print the answer."),
    "chat": ("chat:chat", "Talk with a new agent, or join one."),
    "attach": ("chat:attach", "Follow a session and type into it."),
    "ps": ("listing:ps", "List the sessions, and what they wait for."),
    "show": ("show:show", "Show all about a session, also one that has ended."),
    "logs": ("show:logs", "Print what the daemon's log has of a session."),
    "tree": ("listing:tree", "Show the supervision tree."),
    "doctor": ("doctor:doctor", "Look whether machine and daemon are as they should be."),
    "config": ("config:config", "Show what holds for new agents, and where it comes from."),
    "plugins": ("plugins:plugins", "List the built-in plugins, or describe one."),
    "tail": ("follow:tail", "Print a session's events as they happen."),
    "monitor": ("follow:monitor", "Print when a session's process ends, and why."),
    "prompt": ("sessions:prompt", "Send a prompt to a session."),
    "steer": ("sessions:steer", "Guide a session's running cycle."),
    "approve": ("questions:approve", "Allow a call that waits for approval, or list what waits."),
    "reject": ("questions:reject", "Refuse a call that waits for approval."),
    "respond": ("questions:respond", "Answer a question that a session asks."),
    "model": ("sessions:model", "Send a session's next request to another model."),
    "abort": ("sessions:abort", "End a session's running cycle; the session stays."),
    "stop": ("sessions:stop", "End sessions."),
    "replay": ("replay:replay", "Decide again what a session decided, and show differences."),
    "checkpoints": ("transfer:checkpoints", "List, save or delete a session's checkpoints."),
    "resume": ("transfer:resume", "Let a session go on after its end, or fork it."),
    "export": ("transfer:export", "Write a session to a file, to keep it or to move it."),
    "import": ("transfer:import_", "Start the session of such a file."),
    "backup": ("transfer:backup", "Copy the daemon's journal to a file, while sessions work."),
    "restore": ("transfer:restore", "Put such a copy in the place of a journal, or check it."),
    "mcp": ("mcp:mcp", "Log in at MCP servers, whose tools sessions have then: login, logout."),
    "service": ("service:service", "Have systemd run the daemon: install, uninstall."),
}
"""Name to where it is below this package, and its line in the overview."""


class _Commands(click.Group):
    """The group of all commands, each imported when it is asked for."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return the command of this name."""
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name][0].partition(":")
        found = getattr(importlib.import_module(f"cmdc_runtime.cli.{module}"), function)
        assert isinstance(found, click.Command)  # noqa: S101 - a row of our own table
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named first; what is none may be like one."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            if (near := nearest(args[0], COMMANDS)) is None:
                raise
            raise click.UsageError(f"{error.message} Do you mean {near}?", context) from error

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table, so that it imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="cmdc", message="%(prog)s %(version)s")
def cmdc() -> None:
    """Supervised LLM agents: every session a process of its own, nothing acknowledged is lost.

    Exit status: 0 done, 1 the agent failed, 2 wrong usage, 3 no daemon.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status for the process."""
    open_streams()
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    args = [typed(one) for one in given]
    return exit_status(lambda: cmdc.main(args, "cmdc", standalone_mode=False))


def exit_status(work: Callable[[], object]) -> int:
    """Return the exit status of a command, its error printed on standard error."""
    try:
        status = work()
        flush_output()
    except click.ClickException as error:
        if isinstance(error, OutputLost):
            give_up_output()
        click.echo(_shown(error), nl=False, err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        give_up_output()  # whoever read it has gone
        return EXIT_FAILED
    except CmdcError as error:
        click.echo(f"cmdc: {unbroken(str(error)) or type(error).__name__}", err=True)
        return status_of(error)
    return status if isinstance(status, int) else 0


def _shown(error: click.ClickException) -> str:
    """Return an error as click shows it, its message on one line: it may repeat what was typed."""
    shown, message = io.StringIO(), error.format_message()
    error.show(shown)  # without colours that the message may ask for
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return neutral(shown.getvalue())  # a page of help, with nothing that was typed
    return neutral(shown.getvalue().replace(click.unstyle(message), unbroken(message)))


def status_of(error: CmdcError) -> int:
    """Return the exit status of this error."""
    found = (_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    return next(found, EXIT_FAILED)
