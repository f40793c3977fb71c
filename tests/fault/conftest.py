"""Daemons that a test may kill, and the bounds within which everything of them must be gone."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import connection
from cmdc_runtime.client.open_requests import OpenRequests
from cmdc_runtime.testing import ScriptedModel
from supervisor.adapters.cgroups import Cgroups
from supervisor.core.cgroups import base_name

GONE_S = 15.0
"""For every process of a dead daemon: an agent stops its work first, then the guard ends it."""
POLL_S = 0.02
LOG_SHOWN_CHARS = 8_000


def poll_for(condition, timeout=GONE_S):
    """Return the first true answer of ``condition``, asked again and again until the time is up."""
    never = threading.Event()
    for _ in range(round(timeout / POLL_S)):
        if found := condition():
            return found
        never.wait(POLL_S)
    return condition()


def mentions(process, text):
    """Say whether a living process has ``text`` in its command or its environment."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(text in word for word in [*process.cmdline(), *process.environ().values()])
    except psutil.Error:
        return False


def processes_of(place):
    """Return the living processes that name the place, which every one of a daemon there does."""
    return [one for one in psutil.process_iter() if mentions(one, str(place))]


class OwnDaemon:
    """A daemon with directories of its own, where others may follow it."""

    spares = 2
    grace = 0.0
    """How long agents go on without a daemon; most tests are about those that don't."""
    poll = staticmethod(poll_for)

    def __init__(self):
        self.place = Path(tempfile.mkdtemp(prefix="cmdc-fault-"))
        self.address = self.place / "run"
        self.log = self.place / "log"
        self.process = None

    def command(self, *flags):
        return [sys.executable, "-P", "-m", "supervisor", *flags]

    def environment(self):
        """Name the directories by variables, by which every process of a daemon is found."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
        places = {
            "CMDC_RUNTIME_DIR": self.address,
            "CMDC_STATE_DIR": self.place / "state",
            "CMDC_AGENT_GRACE": self.grace,
        }
        return kept | {name: str(path) for name, path in places.items()}

    def start(self):
        """Start a daemon and return its pid when its sockets are bound."""
        ready, ready_child = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command("--ready-fd", str(ready_child)),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ready_child,),
                start_new_session=True,
            )
        os.close(ready_child)
        with os.fdopen(ready) as pipe:
            answer = json.loads(pipe.readline() or "{}")
        assert answer.get("ready"), f"{answer}\n{self.log.read_text()}"
        return self.process.pid

    def kill(self):
        """End the daemon by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def client(self):
        """Return a new client."""
        return cmdc.Client(self.address)

    def left(self):
        """Return the processes that are there because of its daemons."""
        return processes_of(self.place)

    def tail(self):
        """Return the end of what its daemons have logged; nothing when it is closed."""
        return self.log.read_text()[-LOG_SHOWN_CHARS:] if self.log.exists() else ""

    def close(self):
        """End what runs, and remove the directories."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(GONE_S)
        left = [] if poll_for(lambda: not self.left()) else self.left()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        # A killed daemon leaves empty cgroups, which the next one anywhere would remove.
        Cgroups.survey(base_name(str(self.address))).close()
        for path in sorted(self.place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.place.rmdir()
        assert left == []


class Plans:
    """The plans of fault points: who dies, by session, and whether that has come."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def __call__(self, session_id, *steps):
        """Have them die where the steps say."""
        self._of(session_id).write_text("".join(f"{step}\n" for step in steps))

    def wait_taken(self, session_id):
        """Return when the last step of a session is taken, or raise."""
        assert poll_for(lambda: not self._of(session_id).read_text()), self._of(session_id)

    def _of(self, session_id):
        return self.folder / f"{session_id}.plan"


def pytest_report_header():
    """Say who holds each bound of sessions on this machine: what the tests play depends on it."""
    with contextlib.closing(Cgroups.survey(base_name("who holds what here"))) as cgroups:
        held = ", ".join(f"{one.what} by {one.by}" for one in cgroups.layers)
    return f"bounds of sessions here: {held}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Show with a test that failed what its daemons have logged."""
    report = yield
    daemons = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, OwnDaemon)]
    if report.failed:
        report.sections += [("the daemon's log", found) for one in daemons if (found := one.tail())]
    return report


@pytest.fixture
def own_daemon():
    """A daemon of the test's own; the test starts it."""
    found = OwnDaemon()
    yield found
    found.close()


@pytest.fixture(scope="module")
def shared_daemon():
    """A daemon that the tests of one file share; one of them starts it."""
    found = OwnDaemon()
    yield found
    found.close()


@pytest.fixture
def scripted():
    """Make scripted models that are closed at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(ScriptedModel(steps, **more))


@pytest.fixture(name="poll")
def _poll():
    """Wait for a condition of the operating system."""
    return poll_for


@pytest.fixture(name="processes_of")
def _processes_of():
    """List the living processes that name a place."""
    return processes_of


@pytest.fixture
def armed(own_daemon, tmp_path):
    """A daemon that dies where ``armed(session_id, *steps)`` says; agents wait for the next one."""
    plain, plans = own_daemon.environment, Plans(tmp_path / "plans")
    own_daemon.environment = lambda: plain() | {"CMDC_FAULTS": str(plans.folder)}
    own_daemon.grace = 60.0
    return plans


@pytest.fixture
def _quick(monkeypatch):
    """Have clients ask again soon."""
    monkeypatch.setattr(
        connection, "OpenRequests", functools.partial(OpenRequests, resend_every_s=0.2)
    )
