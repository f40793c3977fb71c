"""``python -m supervisor.restore``: what ``cmdc restore`` turns into.

Exit status: 0 done, 1 the backup or the journal is not as it must be or the output cannot be
written, 2 wrong options, 3 a daemon runs with this journal, 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cmdc_runtime.errors import CmdcError, InvalidOptions, UsageError
from cmdc_runtime.lines import unbroken
from cmdc_runtime.runtime_dir import running_daemon
from supervisor.adapters.journal.backup.replacing import (
    Backup,
    check_backup,
    replace_journal,
    shown_time,
)
from supervisor.adapters.journal.base import JournalLocked
from supervisor.adapters.survivors import find_survivors
from supervisor.config import DaemonConfig, load_config
from supervisor.logs import configure_logs

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_RUNNING: Final = 3
EXIT_INTERRUPTED: Final = 130


class _DaemonThereError(CmdcError):
    """A daemon, or an agent of one, works with the journal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit status."""
    given = _parser().parse_args(arguments)
    file = Path(given.file)
    configure_logs("error", "console")
    try:
        if given.check:
            found = check_backup(file)
            told = _facts(found) | {"file": str(file)}
            _print(told, as_json=given.json, line=f"{file} is whole: {_line(found)}")
            return 0
        places = {name: getattr(given, name) for name in ("state_dir", "runtime_dir", "config")}
        config = load_config(places, os.environ, uid=os.getuid(), home=Path.home())
        return _restore(file, config, force=given.force, as_json=given.json)
    except InvalidOptions as error:
        return _failed("; ".join(error.problems), EXIT_USAGE)
    except _DaemonThereError as error:
        return _failed(str(error), EXIT_RUNNING)
    except CmdcError as error:
        return _failed(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        why = "interrupted: nothing was changed, or the next start of the daemon finishes it"
        return _failed(why, EXIT_INTERRUPTED)


def _restore(file: Path, config: DaemonConfig, *, force: bool, as_json: bool) -> int:
    if config.journal:
        kind = config.journal.partition(":")[0]
        raise UsageError(
            f"the daemon is configured to have its journal in {kind}, and this puts a file in its "
            "place: docs/howto/backup.md says how to restore one in PostgreSQL"
        )
    _check_agents(config)
    try:
        done = replace_journal(file, config.state_dir, force=force)
    except JournalLocked as error:
        raise _DaemonThereError(
            f"a daemon runs with the journal in {config.state_dir}: stop it first"
        ) from error
    kept = None if done.kept is None else str(done.kept)
    told = _facts(done.backup) | {"journal": str(done.journal), "kept_as": kept}
    before = f"; the journal that was there is {kept}" if kept else ""
    _print(told, as_json=as_json, line=f"{done.journal} is {file}: {_line(done.backup)}{before}")
    return 0


def _check_agents(config: DaemonConfig) -> None:
    """Refuse while agents wait for the next daemon, with what the backup may not have.

    Raises:
        _DaemonThereError: some do.
    """
    if running_daemon(config.runtime_dir) is not None:
        return  # they are that one's, and the journal's lock says whether it has this journal
    waiting = find_survivors(config.runtime_dir)
    for one in waiting:
        one.close()
    if waiting:
        raise _DaemonThereError(
            f"{len(waiting)} agents of the last daemon wait for the next one, and have what the "
            f"backup may not have: they end within {config.agent_grace:g} s of its end; try again "
            "then"
        )


def _facts(backup: Backup) -> dict[str, object]:
    return {
        "sessions": len(backup.extent.sessions),
        "live": backup.extent.live,
        "made_ms": backup.seal.made_ms,
        "last_ms": backup.extent.last_ms,
    }


def _line(backup: Backup) -> str:
    extent, at = backup.extent, shown_time(backup.seal.made_ms)
    count = len(extent.sessions)
    sessions = "1 session" if count == 1 else f"{count} sessions"
    return f"{sessions}, {extent.live} live, as of {at}"


def _print(told: dict[str, object], *, as_json: bool, line: str) -> None:
    """Write what was done.

    Raises:
        BrokenPipeError: nobody reads it.
        CmdcError: it cannot be written; says what was done all the same.
    """
    said = f"{json.dumps(told) if as_json else unbroken(line)}\n"
    coding = sys.stdout.encoding
    try:
        sys.stdout.write(said.encode(coding, "backslashreplace").decode(coding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CmdcError(f"{line}; standard output cannot be written: {error.strerror}") from error


def _failed(why: str, status: int) -> int:
    sys.stderr.write(f"cmdc restore: {unbroken(why)}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cmdc restore", description="Restore a journal.")
    parser.add_argument("file")
    parser.add_argument("--force", action="store_true", help="replace a newer journal, too")
    parser.add_argument("--check", action="store_true", help="look at the file, no more")
    parser.add_argument("--json", action="store_true", help="one JSON value for programs")
    parser.add_argument("--state-dir", help="where the journal is")
    parser.add_argument("--runtime-dir", help="where its daemon's sockets are")
    parser.add_argument("--config", help="the daemon's TOML file")
    return parser


if __name__ == "__main__":
    try:
        status = main()
    except BrokenPipeError:  # whoever read it has gone
        status = EXIT_FAILED
    sys.exit(status)
