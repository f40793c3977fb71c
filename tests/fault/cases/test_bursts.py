"""Honest work that makes the daemon remember much at once: nobody is cut off for it."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from cmdc_runtime.testing import Text
from tests.fault.audit import SLEEPER
from tests.fault.cases.test_hoarders import Peak, cut_by, daemon_pid
from tests.fault.cases.test_long import FEW, LONG, TURN_S, run_cli, said

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

IS_FULL = "FAULT_FULL" in os.environ
STARTS = 1_000 if IS_FULL else 40
"""Each is a process that stays until all are up: 1,000 take some 10 GB of the machine."""
STARTERS = 64
IMPORTS = 12 if IS_FULL else 4
"""Of 16 MiB each."""
IMPORTS_AT_ONCE = 2
"""More than this the daemon refuses."""
READERS = 48 if IS_FULL else 12
"""Clients that each read all of 16 MiB, and its stream from the beginning."""
ANSWERS = 2
FULL = ("sessions are being imported", "wait for the journal")
"""What the daemon says while others have the room."""
CUTS = ("connection.cut", "subscriber.cut")


@pytest.fixture
def nobody_cut(place):
    """Have the test fail where somebody is cut meanwhile; the daemon's peak is printed."""
    before, logged = cut_by(place), len(place.log.read_text())
    with Peak(daemon_pid(place)) as peak:
        yield
    cuts = [one for one in place.log.read_text()[logged:].splitlines() if any(map(one.count, CUTS))]
    print(f"the daemon grew by {peak.grown // 2**20} MiB")

    assert (cuts, cut_by(place)) == ([], before)


@pytest.fixture
def long(agent, scripted):
    """A session with a conversation of 15 MiB."""
    answers = [Text(LONG, chunk_chars=len(LONG) // 4, usage=FEW) for _ in range(ANSWERS)]
    session = agent(scripted(*answers))
    for number in range(ANSWERS):
        assert session.run(f"{number}?", timeout=TURN_S).text == LONG
    return session


@pytest.mark.fault_case("F75")
@pytest.mark.usefixtures("nobody_cut")
def test_starts_as_fast_as_it_goes_cut_nobody(client, scripted):
    """Each session answers, with its stream open."""
    model = scripted(default="fine")

    def start(_number):
        session = client.create_agent(model=model, max_restarts=0)
        session.subscribe(since=0)
        return session

    with ExitStack() as stack, ThreadPoolExecutor(STARTERS) as pool:
        sessions = [stack.enter_context(one) for one in pool.map(start, range(STARTS))]
        texts = set(pool.map(lambda one: one.run("1", timeout=TURN_S).text, sessions))
        list(pool.map(lambda one: one.stop(), sessions))

    assert texts == {"fine"}


@pytest.mark.fault_case("F75")
@pytest.mark.usefixtures("nobody_cut")
def test_imports_of_16_mib_cut_nobody(place, client, long, tmp_path):
    """Each is a process of its own, and all have the whole conversation."""
    file, names = tmp_path / "session", [f"{SLEEPER}-{number}" for number in range(IMPORTS)]
    run_cli(place, "export", long.id, "-o", str(file))
    whole, moved = said(long.messages()), []
    with ThreadPoolExecutor(IMPORTS_AT_ONCE) as pool:
        for name in pool.map(lambda name: imported(place, file, name), names):
            moved.append(said(client.messages(name)))
            client.stop(name)

    assert moved == [whole] * IMPORTS


def imported(place, file, name):
    """Import a file as a session, as soon as the daemon has room for it; return its name."""

    def has_room():
        try:
            run_cli(place, "import", str(file), "--as", name)
        except AssertionError as error:
            assert any(one in str(error) for one in FULL)  # noqa: PT017 - anything else fails
            return False
        return True

    assert place.poll(has_room, TURN_S)
    return name


@pytest.mark.fault_case("F75")
@pytest.mark.usefixtures("nobody_cut")
def test_a_crowd_of_clients_with_a_long_history_cuts_nobody(place, long):
    """All read it at once, by pages, and follow its stream from the first event."""
    whole, last = said(long.messages()), long.last_index()

    def read(_number):
        with place.client() as one, one.subscribe(long.id, since=0) as stream:
            messages, index = said(one.messages(long.id)), 0
            while index < last:
                index = stream.get(timeout=TURN_S).index
            return messages

    with ThreadPoolExecutor(READERS) as pool:
        read_by_all = list(pool.map(read, range(READERS)))

    assert read_by_all == [whole] * READERS
