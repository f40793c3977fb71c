"""``python -m supervisor.restore``, what ``cmdc restore`` turns into: a backup replaces a journal.

A backup is looked at, and put in the place of a journal that no daemon has open. A kill may come at
any moment of it: until the backup is whole and durable beside the journal, under the name
``REPLACEMENT``, nothing has changed; from then on it is the journal, and the next start, or the
next one who restores, puts it in its place.

Exit status: 0 done, 1 the backup or the journal is not as it must be or the output cannot be
written, 2 wrong options, 3 a daemon runs with this journal, 130 interrupted.
"""

import argparse
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

from cmdc_runtime.checked_struct import TIME_MS_MAX
from cmdc_runtime.errors import CmdcError, InvalidOptions, UsageError
from cmdc_runtime.lines import unbroken
from cmdc_runtime.runtime_dir import running_daemon
from supervisor.adapters.endpoint import make_private
from supervisor.adapters.journal.backup import (
    Seal,
    copy_pages,
    damage_of,
    open_to_read,
    read_seal,
)
from supervisor.adapters.journal.base import (
    JournalFailed,
    JournalFull,
    JournalLocked,
    JournalRefused,
)
from supervisor.adapters.journal.repair.repairing import finish_interrupted
from supervisor.adapters.journal.repair.restoring import (
    REPLACEMENT,
    REPLACING,
    finish_replacing,
)
from supervisor.adapters.journal.repair.sums import PageSums
from supervisor.adapters.journal.repair.volume import (
    FILE_MODE,
    Volume,
    lacks_room,
    put_in_place,
    wal_of,
)
from supervisor.adapters.journal.schema import check_file
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SUMS_FILE
from supervisor.adapters.orphans import find_survivors
from supervisor.config import DaemonConfig, load_config
from supervisor.logs import configure_logs

# --- how far a journal goes -----------------------------------------------------------------------

_NEWEST: Final = {
    "commands": "seq",
    "records": "seq",
    "snapshots": "seq",
    "events": "first + count - 1",
    "downs": "seq",
}
"""What only grows within a session, by table; the first three have one counter in common."""
_TIMES: Final = {
    "sessions": ("created_ms", "ended_ms"),
    "commands": ("at_ms",),
    "downs": ("at_ms",),
}

Position: TypeAlias = tuple[int, int, int, bool]
"""Of one session: the newest number of its history, event and end, and whether it has ended."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a journal goes: each session by its id and the time at which it was made."""

    sessions: Mapping[tuple[bytes, int], Position]
    last_ms: int
    """The newest time in it, 0 where there is none."""

    @property
    def live(self) -> int:
        """How many sessions have not ended."""
        return sum(1 for *_, has_ended in self.sessions.values() if not has_ended)


def extent_of(db: sqlite3.Connection) -> Extent:
    """Return how far a journal goes, of this format or an earlier one.

    Raises:
        sqlite3.Error: it can't be read.
    """
    db.text_factory = bytes  # an id may be damaged
    tables = {name.decode() for (name,) in db.execute("SELECT name FROM sqlite_master")}
    newest: dict[str, dict[bytes, int]] = {table: {} for table in _NEWEST}
    for table in tables & newest.keys():
        column = f"coalesce(max(CAST({_NEWEST[table]} AS INTEGER)), 0)"
        rows = db.execute(f"SELECT session_id, {column} FROM {table} GROUP BY 1")  # noqa: S608 - our names
        newest[table] = dict(rows)
    sessions = {}
    for session_id, created_ms, has_ended in db.execute(
        "SELECT session_id, CAST(created_ms AS INTEGER), ended_ms IS NOT NULL FROM sessions"
    ):
        history = ("commands", "records", "snapshots")
        seq = max(newest[table].get(session_id, 0) for table in history)
        event, down = (newest[table].get(session_id, 0) for table in ("events", "downs"))
        sessions[session_id, created_ms] = (seq, event, down, bool(has_ended))
    return Extent(sessions, _last_ms(db, tables))


def _last_ms(db: sqlite3.Connection, tables: set[str]) -> int:
    last_ms = 0
    for table, columns in _TIMES.items():
        for column in columns if table in tables else ():
            (found,) = db.execute(
                f"SELECT max({column}) FROM {table} WHERE typeof({column}) = 'integer'"  # noqa: S608 - our names
                f" AND {column} BETWEEN 0 AND {TIME_MS_MAX}"
            ).fetchone()
            last_ms = max(last_ms, found or 0)
    return last_ms


def more_of(journal: Extent, backup: Extent) -> tuple[int, int]:
    """Return how many sessions only the journal has, and of how many more it has more."""
    only = journal.sessions.keys() - backup.sessions.keys()
    further = [
        one
        for one in journal.sessions.keys() - only
        if any(
            now > then
            for now, then in zip(journal.sessions[one], backup.sessions[one], strict=True)
        )
    ]
    return len(only), len(further)


# --- a backup -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that is whole."""

    seal: Seal
    extent: Extent


def check_backup(file: Path) -> Backup:
    """Return what a backup has; all of it is read.

    Raises:
        UsageError: it can't be read.
        JournalRefused: it is no backup, of a newer program, or damaged.
    """
    try:
        return _taken(file, Path("/dev/null"), file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error


def _taken(file: Path, target: Path, database: Path) -> Backup:
    """Write the pages of a backup to ``target``, and return what is in ``database``: the same."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe would be waited for
            raise UsageError(f"{file} is no regular file: `cmdc backup` writes one")
        source = file.open("rb")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    with source:
        seal = read_seal(source)
        if seal is None:
            raise JournalRefused(
                f"{file} is no backup of a journal, or its end is missing or was changed: "
                "`cmdc backup` writes one"
            )
        with target.open("wb") as pages:
            damaged = copy_pages(source, seal, pages)
    if damaged:
        raise JournalRefused(
            f"{file} is damaged: {len(damaged)} of its {seal.pages} pages are not as they were "
            f"written (the first is {damaged[0]}): take another backup"
        )
    check_file(file, "restore it with the program that wrote it, or take another backup")
    if (damage := damage_of(database)) is not None:
        raise JournalRefused(f"{file} is damaged: {damage}: take another backup")
    try:
        with closing(open_to_read(database)) as db:
            return Backup(seal, extent_of(db))
    except sqlite3.Error as error:
        raise JournalRefused(f"{file} has not the tables of a journal: {error}") from error


# --- in the place of a journal --------------------------------------------------------------------

_FORCE: Final = "--force replaces it all the same, and keeps it beside"


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was put in the place of which journal."""

    journal: Path
    backup: Backup
    kept: Path | None
    """The journal that was there, None where there was none."""


def replace_journal(file: Path, state_dir: Path, *, force: bool) -> Replaced:
    """Put a backup in the place of the journal in ``state_dir``; ``force``: also of a newer one.

    Raises:
        UsageError: the backup can't be read.
        JournalRefused: it is no backup, or not whole, or the journal has what it has not.
        JournalLocked: a daemon has the journal.
        JournalFailed: it can't be written there; ``JournalFull`` for want of room.
    """
    make_private(state_dir)
    path = state_dir / JOURNAL_FILE
    volume, sums = Volume(path), PageSums(state_dir / SUMS_FILE, path)
    try:
        volume.claim()
        finish_interrupted(path, sums)
        fresh = path.with_name(REPLACING)
        try:
            fresh.touch(FILE_MODE)
            backup = _taken(file, fresh, fresh)
            if not force:
                _check_older(path, backup)
            put_in_place(fresh, path.with_name(REPLACEMENT))
        finally:
            fresh.unlink(missing_ok=True)
        return Replaced(path, backup, _placed(file, path, sums))
    except OSError as error:
        if lacks_room(error):
            raise JournalFull(f"there is no room for {file} in {state_dir}") from error
        raise JournalFailed(f"{file} can't be put into {state_dir}: {error}") from error
    finally:
        volume.release()


def _placed(file: Path, path: Path, sums: PageSums) -> Path | None:
    """Put the replacement, which is durable, in the journal's place; return the one kept beside.

    Raises:
        JournalFailed: it is not there yet, or not all that belongs to it.
    """
    try:
        return finish_replacing(path, sums)
    except OSError as error:
        raise JournalFailed(
            f"{file} was copied to {path.parent}, and putting it in the journal's place ended with "
            f"{error}: the next start of the daemon finishes it, and so does this command again"
        ) from error


def _check_older(path: Path, backup: Backup) -> None:
    """Refuse where the journal has what the backup has not.

    Raises:
        JournalRefused: it has, or nobody can say.
    """
    if not path.exists() or not path.stat().st_size:
        return
    try:
        journal = _read_journal(path)
    except (sqlite3.Error, JournalRefused) as error:
        raise JournalRefused(
            f"the journal {path} can't be read ({error}), so nobody can say whether it has what "
            f"the backup has not: {_FORCE}"
        ) from error
    only, further = more_of(journal, backup.extent)
    if only or further:
        raise JournalRefused(
            f"the journal {path} has what the backup has not (sessions that are not in it: {only}; "
            f"of which the journal has more: {further}). Its last entry is of "
            f"{shown_time(journal.last_ms)}, the backup of {shown_time(backup.seal.made_ms)}; "
            f"{_FORCE}"
        )


def shown_time(at_ms: int) -> str:
    """Return a wall time as people read it, a wild one as the number it is."""
    if not 0 <= at_ms <= TIME_MS_MAX:
        return f"{at_ms} ms since 1970"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _read_journal(path: Path) -> Extent:
    """Return how far a journal goes that nobody has open, its log included; nothing is changed."""
    check_file(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            return extent_of(db)
    finally:  # what SQLite makes to read it, too
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            if not wal_of(path).stat().st_size:
                wal_of(path).unlink()


# --- the command ----------------------------------------------------------------------------------

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
            facts = _facts(found) | {"file": str(file)}
            _print(facts, as_json=given.json, line=f"{file} is whole: {_line(found)}")
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
    facts = _facts(done.backup) | {"journal": str(done.journal), "kept_as": kept}
    before = f"; the journal that was there is {kept}" if kept else ""
    _print(facts, as_json=as_json, line=f"{done.journal} is {file}: {_line(done.backup)}{before}")
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


def _print(facts: dict[str, object], *, as_json: bool, line: str) -> None:
    """Write what was done.

    Raises:
        BrokenPipeError: nobody reads it.
        CmdcError: it cannot be written; says what was done all the same.
    """
    said = f"{json.dumps(facts) if as_json else unbroken(line)}\n"
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
