"""Thirteen kinds of faults at random, while people work: what holds after each holds after all.

Each kind comes once, and then any of them for ``SOUP_S`` seconds: 10, a day with ``FAULT_FULL=1``,
or what is set. Full disks, ruined journals, clocks and memory are not among them. The seed of a run
is in its output; ``SOUP_SEED`` plays it again, as far as chance of ours goes.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from cmdc_runtime.testing import Text
from tests.fault.cases.test_crowds import come_and_go
from tests.fault.cases.test_machine import shout
from tests.fault.cases.test_surroundings import zygote_pid
from tests.fault.conftest import OwnDaemon

IS_FULL = "FAULT_FULL" in os.environ
SOUP_S = float(os.environ.get("SOUP_S", "86400" if IS_FULL else "10"))
"""For which faults go on, once each kind was there."""
SEED = int(os.environ.get("SOUP_SEED", "1"))
pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(SOUP_S + 600.0),
]

TURN_S = 120.0
PEOPLE = 3
PAUSE_S = 0.3
"""Between two faults, on the average; the next one may come while the last one is not over."""
STOPPED_S = 0.5
"""For which a process does not run; it is not thought to hang for that."""
CROWD = 50


class LastingDaemon(OwnDaemon):
    """Daemons whose agents wait for the next one."""

    grace = TURN_S


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = LastingDaemon()
    yield found
    found.close()


class Soup:
    """One daemon, the sessions that people work with, and what befalls it."""

    def __init__(self, place, client, sessions, seed):
        self.place, self.client, self.sessions = place, client, sessions
        self.chance, self.over, self.had = random.Random(seed), threading.Event(), Counter()

    # --- what goes on -----------------------------------------------------------------------

    def work(self, session):
        """Say one thing after the other; return all that was said and answered."""
        said = []
        while not self.over.wait(PAUSE_S / 10):
            said.append(f"{session.id}: {len(said)}")
            assert session.run(said[-1], timeout=TURN_S).text == "fine"
        return said

    def rage(self):
        """Bring about each fault once, in any order, and then any of them while there is time."""
        kinds = list(FAULTS)
        self.chance.shuffle(kinds)
        ends_s = time.monotonic() + SOUP_S
        while kinds or time.monotonic() < ends_s:
            kind = kinds.pop() if kinds else self.chance.choice(FAULTS)
            self.over.wait(self.chance.expovariate(1 / PAUSE_S))
            kind(self)
            self.had[kind.__name__] += 1

    # --- what it is done to -----------------------------------------------------------------

    def signal_agent(self, number):
        """Send a signal to the process of some session, if it has one now; return that."""
        pid = self.chance.choice(self.sessions).agent_pid()
        if pid is None:
            return None
        try:
            process = psutil.Process(pid)
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return None
        return process

    def kill_agent(self):
        self.signal_agent(signal.SIGKILL)

    def crash_agent(self):
        self.signal_agent(signal.SIGSEGV)

    def end_agent(self):
        self.signal_agent(signal.SIGTERM)

    def pause_agent(self):
        if (process := self.signal_agent(signal.SIGSTOP)) is not None:
            self.over.wait(STOPPED_S)
            process.resume()

    def kill_spare(self):
        agents = {one.pid for one in self.client.list_sessions()}
        if (zygote := zygote_pid(self.client)) is None:
            return
        workers = psutil.Process(zygote).children()
        for spare in [one for one in workers if one.pid not in agents][:1]:
            spare.kill()

    def kill_zygote(self):
        if (zygote := zygote_pid(self.client)) is not None:
            os.kill(zygote, signal.SIGKILL)

    def kill_daemon(self):
        self.place.kill()
        self.place.start()

    def kill_daemon_and_agent(self):
        """Nobody is there when the agent dies."""
        self.rebuild([self.chance.choice(self.sessions)])

    def rebuild(self, sessions):
        """Have nothing of some sessions left but what is in the journal."""
        pids = [one.agent_pid() for one in sessions]
        self.place.kill()
        for pid in filter(None, pids):
            os.kill(pid, signal.SIGKILL)
        self.place.start()

    def stop_daemon(self):
        self.place.process.send_signal(signal.SIGTERM)
        self.place.process.wait(TURN_S)
        self.place.start()

    def pause_daemon(self):
        daemon = psutil.Process(self.place.process.pid)
        daemon.suspend()
        self.over.wait(STOPPED_S)
        daemon.resume()

    def talk_nonsense(self):
        for name in ("control.sock", "workers.sock"):
            shout(self.place.address / name, CROWD)

    def come_and_go(self):
        come_and_go(self.place, self.chance.choice(self.sessions), CROWD)

    def give_up_waits(self):
        """Wait for what does not come yet, and stop to."""
        with self.client.subscribe(self.chance.choice(self.sessions).id) as stream:
            for _ in range(CROWD):
                try:
                    stream.get(timeout=0.0)
                except TimeoutError:
                    continue


FAULTS = (
    Soup.kill_agent,
    Soup.crash_agent,
    Soup.end_agent,
    Soup.pause_agent,
    Soup.kill_spare,
    Soup.kill_zygote,
    Soup.kill_daemon,
    Soup.kill_daemon_and_agent,
    Soup.stop_daemon,
    Soup.pause_daemon,
    Soup.talk_nonsense,
    Soup.come_and_go,
    Soup.give_up_waits,
)


@pytest.mark.fault_case("F70")
def test_faults_at_random_lose_and_double_nothing(place, client, agent, scripted, audit):
    """What was said is in each conversation once, in its order, and the audit holds.

    Nobody lends a hand but who starts the next daemon, as a service manager does.
    """
    audit.daemon_died = True
    model = scripted(default=Text("fine", chunk_chars=1, delay=0.02))
    budget = {"max_restarts": 1_000_000, "max_cycle_crashes": 1_000_000}
    sessions = [agent(model, restart_delay=(0.0, 0.1), **budget) for _ in range(PEOPLE)]
    soup = Soup(place, client, sessions, SEED)
    with ThreadPoolExecutor(PEOPLE) as pool:
        works = [pool.submit(soup.work, one) for one in sessions]
        try:
            soup.rage()
        finally:
            soup.over.set()
            print(f"SOUP_SEED={SEED}: {dict(soup.had)}")
        said = [one.result(TURN_S) for one in works]

    assert set(soup.had) == {kind.__name__ for kind in FAULTS}
    soup.rebuild(sessions)
    for session, texts in zip(sessions, said, strict=True):
        heard = session.messages()
        assert [one.content for one in heard if one.role == "user"] == texts
        assert [one.content for one in heard if one.role == "assistant"] == ["fine"] * len(texts)
        assert session.status().state == "idle"
