"""What must be true after every fault: nobody else was touched, and nothing is left.

``Audit`` is taken before a fault and checked after it. A case may kill, stop or starve what it
likes, the daemon included; when the sessions of the case are ended, the same holds as before.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cmdc_runtime.commands import Status
from cmdc_runtime.process import TITLE_PREFIX
from cmdc_runtime.runtime_dir import REGISTRY, TOKEN_FILE

SETTLE_S = 20.0
"""For the machine, which may be busy, to be as it was."""
FDS_MORE_MAX = 8
"""Descriptors of the daemon beyond those before: a spare on its way, a log, a connection."""
SOCKETS = {"control.sock", "events.sock", "workers.sock", "output.sock"}
FILES = {"daemon.lock", TOKEN_FILE, REGISTRY, *SOCKETS}
"""What may lie in a runtime directory."""
COPIES_MAX = 5
"""Of a journal that is written to meanwhile, until one is whole."""
SPARE = f"{TITLE_PREFIX}spare"
"""The title of a process that waits to be an agent."""
SLEEPER = "sleeper-"
"""What the id of a session begins with that sleeps in a case, or is resumed."""
TRACEBACKS = ("Traceback (most recent call last)", "never retrieved", "Exception ignored")


@dataclass
class Audit:
    """One daemon with one session that has nothing to do with the fault."""

    own_daemon: object
    poll: object
    bystander: object
    daemon_died: bool = False
    """Whether the case has ended the daemon; the next one goes on with the bystander."""
    bystander_died: bool = False
    """Whether the case has shown that the bystander's process had to end, too."""
    log_says: tuple = ()
    """Words of tracebacks in the log that the case brings about on purpose."""
    _before: dict = field(default_factory=dict)

    def begin(self):
        """Remember how things are, once the spares of the case before are replaced."""
        self.poll(lambda: len(self._spares()) >= self.own_daemon.spares, SETTLE_S)
        status = self.bystander.status()
        self._before = {
            "pid": status.pid,
            "incarnation": status.incarnation,
            "daemon": self.own_daemon.process.pid,
            "fds": self._fds(),
            "log": len(self._log()),
        }

    def check(self):
        """Fail with everything that is not as it should be."""
        problems = [*self._bystander(), *self._log_problems()]
        for name, look in (
            ("processes", self._strangers),
            ("zombies", self._zombies),
            ("files", self._litter),
        ):
            if not self.poll(lambda look=look: not look(), SETTLE_S):
                problems.append(f"{name} are left: {[*map(_shown, look())]}")
        if not self.daemon_died and not self.poll(self._fds_are_back, SETTLE_S):
            problems.append(f"descriptors: {self._before['fds']} before, {self._fds()} after")
        problems += self._journal_problems()
        assert problems == [], "\n".join(problems)

    # --- looks ------------------------------------------------------------------------------

    def _bystander(self):
        status: Status = self.bystander.status()
        found = []
        if self.bystander.run("Still there?", timeout=60.0).text != "fine":
            found.append("the bystander does not answer as before")
        may_differ = self.daemon_died or self.bystander_died
        if not may_differ and status.pid != self._before["pid"]:
            found.append(f"the bystander's pid is {status.pid}, it was {self._before['pid']}")
        return found

    def _daemon(self):
        return psutil.Process(self.own_daemon.process.pid)

    def _strangers(self):
        """Return processes of the place beyond its daemon, zygote, tracker, spares and agents."""
        known = self._known() | set(self._spares()[: self.own_daemon.spares])
        return [one for one in self.own_daemon.left() if one.pid not in known]

    def _known(self):
        """Return the pids of the daemon, its own children, and the agents.

        A spare is the daemon's own child where the zygote that forked it is gone.
        """
        daemon = self._daemon()
        agents = (one.pid for one in self.bystander.client.list_sessions())
        own = (one.pid for one in daemon.children() if not _is_spare(one))
        return {daemon.pid, *own, *agents}

    def _spares(self):
        """Return the pids of what else is below the daemon."""
        below = (one.pid for one in self._daemon().children(recursive=True))
        known = self._known()
        return [pid for pid in below if pid not in known]

    def _zombies(self):
        found = [self._daemon(), *self._daemon().children(recursive=True)]
        return [one for one in found if _is_zombie(one)]

    def _fds(self):
        return self._daemon().num_fds()

    def _fds_are_back(self):
        return self._fds() <= self._before["fds"] + FDS_MORE_MAX

    def _litter(self):
        names = {path.name for path in Path(self.own_daemon.address).iterdir()}
        return {name for name in names - FILES if not name.startswith("h-")}

    def _log(self):
        return self.own_daemon.log.read_text(errors="replace")

    def _log_problems(self):
        new = self._log()[self._before["log"] :]
        return [
            f"the log has: {line}"
            for line in new.splitlines()
            if any(word in line for word in TRACEBACKS)
            and not any(word in line for word in self.log_says)
        ]

    def _journal_problems(self):
        """Check the file itself, and that each end has one Down.

        A sleep is an end without a Down, of which the journal keeps the newest only: how many
        processes a session has had that slept cannot be counted there. It is named for that,
        as is one that is resumed, whose earlier ends count as another session's.
        """
        with self._journal_copy() as db:
            (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
            doubled = db.execute(
                "SELECT session_id, incarnation, restarting, count(*) FROM downs "
                "WHERE incarnation IS NOT NULL "
                "GROUP BY session_id, incarnation, restarting HAVING count(*) > 1"
            ).fetchall()
            missing = db.execute(
                "SELECT s.session_id, s.incarnation, count(DISTINCT d.incarnation) AS recorded "
                "FROM sessions s LEFT JOIN downs d ON d.session_id = s.session_id "
                "AND d.incarnation IS NOT NULL GROUP BY s.session_id "
                "HAVING recorded < s.incarnation - (s.ended_ms IS NULL) "
                f"AND s.session_id NOT LIKE '{SLEEPER}%'"
            ).fetchall()
        found = [] if verdict == "ok" else [f"the journal: {verdict}"]
        found += [f"two Downs of one end: {row}" for row in doubled]
        return found + [f"an end without a Down: {row}" for row in missing]

    @contextlib.contextmanager
    def _journal_copy(self):
        """Lend a copy of the journal, which its daemon has locked and may be writing to."""
        for attempt in range(COPIES_MAX):
            with tempfile.TemporaryDirectory() as folder:
                for path in (self.own_daemon.place / "state").glob("journal.sqlite3*"):
                    shutil.copy(path, folder)
                with contextlib.closing(sqlite3.connect(Path(folder, "journal.sqlite3"))) as db:
                    is_last = attempt == COPIES_MAX - 1
                    if is_last or _is_whole(db):
                        yield db
                        return


def _is_whole(db):
    try:
        return db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def _is_spare(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()[:1] == [SPARE]
    return False


def _shown(left):
    """Return what a person needs to know whose process it is; a file has a name."""
    with contextlib.suppress(psutil.Error, AttributeError):
        return f"{left.pid} of {left.ppid()} since {left.create_time():.1f}: {left.cmdline()}"
    return left


def _is_zombie(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
