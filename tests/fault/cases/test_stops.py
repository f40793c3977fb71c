"""A daemon that is stopped while it is used, and while it starts: the next one goes on with all."""

import contextlib
import os
import signal
import subprocess
import threading
from dataclasses import dataclass, field

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Other

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
END_S = 30.0
GRACE_S = 1.0
"""Of a session whose process hears nothing: so long the daemon's stop lasts."""
SESSIONS = 3
FIRST, LATER = 2, 12
"""Prompts that each session has had when the daemon is asked to stop."""
LOOKS = ("status", "messages", "list_sessions", "tree", "last_index")
AGENTS, DEAF = 5, 2
LOOK_S = 0.01
RESTARTED = Other(detail="the daemon was restarted")


@pytest.fixture(scope="module")
def shared_daemon(shared_daemon):
    """A daemon whose agents wait for the next one."""
    shared_daemon.grace = 60.0
    return shared_daemon


@dataclass
class Crowd:
    """Clients that go on while daemons come and go, and what they heard."""

    sessions: list
    taken: list = field(default_factory=list)
    refused: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    downs: list = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list = field(default_factory=list)

    def __enter__(self):
        for number, session in enumerate(self.sessions):
            session.monitor(self.downs.append, persistent=True)
            self._spawn(self._prompt, session, number)
            self._spawn(self._read, session, session.subscribe())
        for look in LOOKS:
            self._spawn(self._look, look)
        return self

    def __exit__(self, *_error):
        self.is_over.set()
        for thread in self._threads:
            thread.join(2 * TURN_S)
        assert [one for one in self._threads if one.is_alive()] == []

    def _spawn(self, work, *args):
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def _prompt(self, session, number):
        count = 0
        while not self.is_over.is_set():
            text = f"{number}/{count}"
            count += 1
            try:
                session.prompt(text)
                self.taken.append(text)
                session.collect_reply(timeout=TURN_S)
            except cmdc.CmdcError as error:
                reported = f"{type(error).__name__}: {error}"
                (self.problems if text in self.taken else self.refused).append((text, reported))

    def _look(self, name):
        while not self.is_over.wait(LOOK_S):
            first = self.sessions[0]
            of_all = {"list_sessions": first.client.list_sessions, "tree": first.client.tree}
            try:
                found = of_all.get(name, getattr(first, name, None))()
            except cmdc.CmdcError as error:
                self.problems.append((name, f"{type(error).__name__}: {error}"))
                continue
            self._check(name, found)

    def _check(self, name, found):
        known = {session.id for session in self.sessions}
        if name == "list_sessions" and not known <= {one.session_id for one in found}:
            self.problems.append((name, [one.session_id for one in found]))
        if name == "status" and found.state in {"unresponsive", "ended", "stopping"}:
            self.problems.append((name, found.state))
        if name == "tree":
            shown = {one.id: one for one in found.children}["sessions"].children
            if not {f"session:{one}" for one in known} <= {one.id for one in shown}:
                self.problems.append((name, [one.id for one in shown]))

    def _read(self, session, stream):
        while not self.is_over.is_set():
            try:
                stream.get(0.2)
            except TimeoutError:
                continue
            except cmdc.CmdcError as error:
                self.problems.append((f"stream of {session.id}", str(error)))
                return
        stream.close()


def said_to(session):
    """Return what users have said to a session, in its order."""
    return [one.content for one in session.messages() if one.role == "user"]


@pytest.mark.fault_case("F78")
@pytest.mark.parametrize("prompts", [FIRST, LATER])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR2"])
def test_stop_under_load_takes_back_nothing_that_it_says(place, agent, audit, name, prompts):
    """Each prompt has its effect once or was refused without one; nobody hears of an end."""
    audit.daemon_died = True
    deaf = agent(shutdown=GRACE_S)
    stopped = deaf.agent_pid()
    with Crowd([agent() for _ in range(SESSIONS)]) as crowd:
        assert place.poll(lambda: len(crowd.taken) >= SESSIONS * prompts, TURN_S)
        os.kill(stopped, signal.SIGSTOP)
        place.process.send_signal(signal.Signals[name])
        status = place.process.wait(END_S)
        before = len(crowd.taken)
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
        place.start()
        assert place.poll(lambda: len(crowd.taken) > before + SESSIONS, TURN_S)
    heard = [text for session in crowd.sessions for text in said_to(session)]
    answer = deaf.run("Still there?", timeout=TURN_S).text

    assert status == 0
    assert (crowd.problems, crowd.refused) == ([], [])
    assert sorted(heard) == sorted(crowd.taken)
    if name == "SIGUSR2":
        assert crowd.downs == []
    assert [(one.reason, one.restarting) for one in crowd.downs] == [(RESTARTED, True)] * len(
        crowd.downs
    )
    assert answer == "fine"


def launch(place):
    """Start a daemon, and return as soon as its agents can reach it."""
    socket = place.address / "workers.sock"
    before = socket.stat().st_ctime_ns
    with place.log.open("ab") as log:
        place.process = subprocess.Popen(
            place.command(),
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert place.poll(lambda: socket.exists() and socket.stat().st_ctime_ns != before, TURN_S)


@pytest.mark.fault_case("F79")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR2"])
@pytest.mark.parametrize("adopted", [0, AGENTS - DEAF])
def test_stop_amid_the_start_leaves_every_agent_to_the_next_one(place, agent, audit, name, adopted):
    """Before one has called, and while others have not: the same processes go on, nobody hears."""
    audit.daemon_died = True
    sessions = [agent() for _ in range(AGENTS)]
    for session in sessions:
        session.run("Hello.", timeout=TURN_S)
    pids = [session.agent_pid() for session in sessions]
    with Crowd(sessions[:2]) as crowd:
        place.kill()
        before = len(crowd.taken)
        for pid in pids[-DEAF:]:
            os.kill(pid, signal.SIGSTOP)
        known = len(place.log.read_text())
        launch(place)
        assert place.poll(lambda: place.log.read_text()[known:].count("agent.adopted") >= adopted)
        place.process.send_signal(signal.Signals[name])
        status = place.process.wait(END_S)
        said = place.log.read_text()[known:]
        for pid in pids[-DEAF:]:
            os.kill(pid, signal.SIGCONT)
        place.start()
        assert place.poll(lambda: len(crowd.taken) > before + SESSIONS, TURN_S)
    after = [session.agent_pid() for session in sessions]
    answers = [session.run("Still there?", timeout=TURN_S).text for session in sessions]

    assert (status, "daemon.started" in said) == (0, False)
    assert (crowd.problems, crowd.refused, crowd.downs) == ([], [], [])
    assert after == pids
    assert answers == ["fine"] * AGENTS
