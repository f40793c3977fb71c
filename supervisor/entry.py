"""From the command line to a running daemon, and what is said when it can't run.

Exit status: 0 stopped as asked, 1 it failed, 2 wrong options, 3 another daemon is there.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import cmdc_runtime.structlog_alone  # noqa: F401 - before all that imports structlog

# isort: split
import structlog

import supervisor
from cmdc_runtime.errors import CmdcError, InvalidOptions
from cmdc_runtime.installation import has_supervisor_beside, package_problem
from cmdc_runtime.lines import unbroken
from cmdc_runtime.prctl import answer_others, set_dumpable, set_title
from cmdc_runtime.process import DAEMON_TITLE, SWITCH_INTERVAL_S
from supervisor.adapters import systemd
from supervisor.adapters.endpoint import DaemonRunning
from supervisor.adapters.systemd import Notifier
from supervisor.config import SECRET_VARIABLES, DaemonConfig, load_config
from supervisor.daemon import Daemon
from supervisor.logs import configure_logs
from supervisor.upkeep.memory import bound_arenas

log = structlog.get_logger()

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_RUNNING: Final = 3
NICE_STEPS: Final = 5
"""By so many the daemon goes before its sessions, for all of which it does little at a time: where
both want a processor it gets three times as much of it as one of them."""


def main() -> None:
    """Run a daemon as the arguments and the environment say."""
    with contextlib.suppress(OSError):  # a seccomp filter; what tools can read, they read then
        set_dumpable(is_dumpable=False)  # the keys are in its environment
    flags = _parse(sys.argv[1:])
    if flags.pop("detached"):
        _detach()
    environ = dict(os.environ)
    read = partial(load_config, flags, environ, uid=os.getuid(), home=Path.home())
    try:
        config = read()
    except InvalidOptions as error:
        _fail(flags.get("ready_fd"), "; ".join(error.problems), EXIT_USAGE)
    _check_platform(config)
    set_title(DAEMON_TITLE, " ".join((DAEMON_TITLE, *sys.argv[1:])))
    bound_arenas()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    answer_others(steps=NICE_STEPS)
    configure_logs(config.log_level, config.log_format)
    _warn_of_neighbours()
    # The stacks of all threads, when a watchdog's SIGABRT or a crash ends the process.
    faulthandler.enable()
    # What is the daemon's alone; agents and their tools inherit the rest.
    for name in (*systemd.VARIABLES, *SECRET_VARIABLES):
        os.environ.pop(name, None)
    # Where agents find what a person has left for them, as logins at MCP servers. The state of an
    # embedded daemon ends with it: its agents look where that of this user is.
    if not config.embedded:
        os.environ["CMDC_STATE_DIR"] = str(config.state_dir)
    # What was imported stays for good: a collection looks at what came since, and so comes in time
    # for what sessions and processes leave behind.
    gc.collect()
    gc.freeze()
    try:
        with Notifier.from_environment(environ, pid=os.getpid()) as notifier:
            asyncio.run(_run(config, notifier, read))
    except DaemonRunning as error:
        _fail(config.ready_fd, str(error), EXIT_RUNNING)
    except (CmdcError, OSError) as error:
        _fail(config.ready_fd, str(error), EXIT_FAILED)


async def _run(config: DaemonConfig, notifier: Notifier, read: Callable[[], DaemonConfig]) -> None:
    await Daemon(config, notifier, read).run()


def _parse(arguments: list[str]) -> dict[str, object]:
    parser = _Parser(prog="cmdc serve", description="Run the cmdc daemon.")
    parser.add_argument("--runtime-dir", help="where the sockets are")
    parser.add_argument("--state-dir", help="where the journal is")
    parser.add_argument("--config", help="a TOML file with the same names")
    parser.add_argument("--spares", help="idle workers forked ahead")
    parser.add_argument("--max-sessions", help="live sessions at most")
    parser.add_argument("--durability", help="process or power")
    parser.add_argument("--journal", help="memory, or postgresql://... without a password")
    parser.add_argument("--journal-schema", help="where in PostgreSQL its tables are")
    parser.add_argument("--retain-days", help="how long ended sessions are kept, 0 for ever")
    parser.add_argument("--allow-code-by-value", help="same-uid, always or never")
    parser.add_argument("--log-level", help="debug, info, warning or error")
    parser.add_argument("--log-format", help="console or json")
    parser.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--embedded", action="store_true", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--owner-pid", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--owned-dir", help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--echo-fd", type=int, help=argparse.SUPPRESS)
    return vars(parser.parse_args(arguments))


def _detach() -> None:
    """Go on in a child that nobody who waits for this process has to reap, without a terminal.

    Whoever starts it so has made this process the first of a POSIX session, which the child is not.
    """
    if os.fork():
        os._exit(0)


def _check_platform(config: DaemonConfig) -> None:
    """Say plainly what is missing, and whose package ``supervisor`` is where it is not ours."""
    if not hasattr(os, "pidfd_open") or sys.platform != "linux":
        _fail(config.ready_fd, "the daemon needs Linux 5.10 or newer (pidfd)", EXIT_FAILED)
    ours = Path(__file__).resolve().parent
    origin = supervisor.__spec__.origin  # None of a folder that has lost its __init__.py
    if origin is None or Path(origin).resolve().parent != ours:
        _fail(config.ready_fd, package_problem(ours.name), EXIT_FAILED)


def _warn_of_neighbours() -> None:
    """Log whose package lies in one folder with the daemon's: it works, until one is removed."""
    if has_supervisor_beside() and (problem := package_problem(supervisor.__name__)):
        log.warning("package.shared", problem=problem)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in one line, whatever they are."""

    def error(self, message: str) -> NoReturn:
        """End the process."""
        super().error(unbroken(message))


def _fail(ready_fd: object, problem: str, status: int) -> NoReturn:
    if isinstance(ready_fd, int):
        # Once ready was reported the pipe is closed: then the log has to do.
        with contextlib.suppress(OSError), os.fdopen(ready_fd, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps({"error": problem, "status": status}) + "\n")
    sys.stderr.write(f"cmdc serve: {unbroken(problem)}\n")
    sys.exit(status)
