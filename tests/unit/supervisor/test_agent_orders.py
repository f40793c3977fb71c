"""One process of a session: what it is asked, what it is given, and what is done with its words."""

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest

from cmdc_runtime.reasons import StartFailed
from cmdc_runtime.requests import Supervision
from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import (
    OWN_SLOT,
    Adopted,
    Batch,
    Completed,
    Deliver,
    Detached,
    LitellmWanted,
    Refusal,
    ServerWanted,
    Started,
    Terminate,
    Write,
)
from supervisor.adapters.journal.base import JournalFailed
from supervisor.adapters.journal.operations import AppendRecords, LoadSession
from supervisor.core.exits import Asked
from supervisor.core.storage import Condition
from supervisor.core.tree.messages import Ref
from supervisor.sessions.agent import Agent
from supervisor.sessions.session_tasks import SessionTasks
from tests.unit.supervisor.services import PlayedOwner, PlayedWorker, Services, play, settle

POLICY = Supervision(unresponsive_after=7.0)
EVENT = Batch(first=1, count=1, durable=False)
ANNOUNCED = Detached(worker_id="w", session_id="s", incarnation=4, first=1)


class Acks:
    """Writes down what is to be said to the agent."""

    written = 0

    def __init__(self):
        self.heard = []

    def publish(self):
        self.heard.append("publish")

    def store(self, number):
        self.heard.append(number)

    def close(self):
        self.heard.append("close")


def made():
    """Return a process that nobody hears yet; its services, owner and worker are its own."""
    services, worker = Services(), PlayedWorker(7)
    services.journal.answers[AppendRecords] = lambda _write: (
        asyncio.get_running_loop().create_future()
    )
    services.hub.take = lambda *_args: True
    services.hub.opened = []
    services.hub.open_channel = lambda *args: services.hub.opened.append(args)
    ref = Ref(("sessions", "session:s"), "agent", 4)
    return Agent(ref, PlayedOwner(), services, worker, SessionTasks("s", print))


def acquired():
    process = made()
    process.take_over(POLICY)
    return process


def adopted():
    process = made()
    process.adopt(POLICY, 3)
    return process


def test_it_is_asked_by_a_frame_and_then_by_signals():
    """Each rung of the ladder is remembered; a question for its stacks is none."""

    async def scenario():
        process, rungs = acquired(), []
        for step in (
            process.on_stack,
            lambda: process.ask("enough"),
            lambda: process.ask("over", over=True),
            process.terminate,
            lambda: process.ask("please"),
        ):
            step()
            rungs.append(process.asked)
        return process.worker, rungs

    worker, rungs = play(scenario)

    assert worker.signals == [signal.SIGQUIT, signal.SIGTERM]
    assert worker.sent == [
        Terminate(reason=reason, over=over)
        for reason, over in (("enough", False), ("over", True), ("please", False))
    ]
    assert rungs == [Asked.NOTHING, Asked.POLITELY, Asked.POLITELY, Asked.SIGTERM, Asked.SIGTERM]


def test_what_its_surroundings_find_is_for_the_tree():
    """It ends the process, as its restart type says."""

    async def scenario():
        process = acquired()
        process.on_fail(StartFailed(stage="rebuild", message="why"))
        return process.services.runtime.made

    assert play(scenario) == [f"fail: {StartFailed(stage='rebuild', message='why')}"]


def test_one_that_needs_litellm_is_for_its_session():
    """Which gives it another process."""

    async def scenario():
        process = acquired()
        process.worker.says(LitellmWanted())
        return process.owner.lean == [process]

    assert play(scenario)


def test_one_that_wants_a_shared_server_learns_where_it_is():
    """By who has the hosts of all of them."""

    async def scenario():
        process, asked = acquired(), []
        want = lambda *args: asked.append(args)  # noqa: E731 - a method
        process.services.server_hosts = SimpleNamespace(want=want)
        process.worker.says(ServerWanted(key="k"))
        return asked == [(process.worker, "k")]

    assert play(scenario)


@pytest.mark.parametrize("how", ["assign", "take_over"])
def test_its_containment_learns_whose_it_is(how):
    """And for how long it may say nothing once it is up."""

    async def scenario():
        process, heard = made(), []
        setattr(process.worker.containment, how, lambda *args: heard.append(args))
        process.take_over(POLICY) if how == "assign" else process.adopt(POLICY, 3)
        process.begin(POLICY)
        await settle()
        return heard, process.worker.containment.expected

    assert play(scenario) == ([(7, "s", 4, POLICY)], [7.0])


def test_a_worker_is_registered_when_it_says_that_it_is_up():
    """One that was adopted, too: until it knows of that it takes itself out where it ends."""

    async def scenario():
        new, kept = acquired(), adopted()
        kept.worker.says(ANNOUNCED)
        before = new.worker.is_registered, kept.worker.is_registered
        new.worker.says(Started())
        kept.worker.says(Started())
        return before, new.worker.is_registered, kept.worker.is_registered, new.owner.ups

    assert play(scenario) == ((False, False), True, True, 1)


@pytest.mark.parametrize(("process_of", "given"), [(acquired, []), (adopted, ["c-1", "c-2"])])
def test_an_adopted_agent_is_given_what_it_may_not_have(process_of, given):
    """The daemon before took the commands, and perhaps did not hand them on."""
    unanswered = [SimpleNamespace(command_id=one, body=encode("go")) for one in ("c-1", "c-2")]

    async def scenario():
        process = process_of()

        async def load(_query):
            return SimpleNamespace(unanswered=unanswered)

        process.services.journal.answers[LoadSession] = load
        process.begin(POLICY)
        await settle()
        return process.worker.sent

    sent = play(scenario)

    assert [one.id for one in sent] == given
    assert all(isinstance(one, Deliver) and one.durable for one in sent)
    assert [bytes(one.body) for one in sent] == [encode("go")] * len(given)


def test_an_adopted_agent_whose_history_is_gone_is_ended():
    """There may be none at all, too: then there is nothing to give."""

    async def scenario():
        lost, new = adopted(), adopted()

        async def load(_query):
            raise JournalFailed("no disk")

        lost.services.journal.answers[LoadSession] = load
        lost.begin(POLICY)
        new.begin(POLICY)
        await settle()
        return lost, new

    lost, new = play(scenario)

    assert (lost.worker.signals, lost.fail_reason.stage) == ([9], "rebuild")
    assert (new.worker.signals, new.worker.sent) == ([], [])


@pytest.mark.parametrize(
    ("frame", "heard", "has_spoken"),
    [
        (Write(records=(), completed=(), number=1), (), True),
        (EVENT, ((EVENT, b"x"),), True),
        (Started(), (), False),
    ],
    ids=["a write", "an event", "neither"],
)
def test_who_has_written_or_published_has_spoken(frame, heard, has_spoken):
    """Another process may take the place of one that has not."""

    async def scenario():
        process = acquired()
        process._acks = Acks()
        before = process.has_spoken
        process.worker.owner.on_frame(frame, heard)
        return before, process.has_spoken, process._acks.heard

    before, after, acks = play(scenario)

    assert (before, after) == (False, has_spoken)
    assert acks == (["publish"] if isinstance(frame, Batch) else [])


@pytest.mark.parametrize("goes_on", [True, False])
def test_who_gives_way_ends_unheard_if_another_one_takes_its_place(goes_on):
    """Else it is an end like any other."""

    async def scenario():
        process = acquired()
        process._acks = Acks()
        process.give_way(lambda: goes_on)
        process.worker.ends(-9)
        await settle()
        return process.worker.signals, len(process.owner.ended), process._acks.heard

    assert play(scenario) == ([9], *((0, []) if goes_on else (1, ["close"])))


@pytest.mark.parametrize(("brings_slot", "slot"), [(True, OWN_SLOT), (False, 5)])
def test_who_announces_itself_learns_who_took_it_over(brings_slot, slot):
    """Each time that it asks; its stream is opened once, and only for another daemon's."""

    async def scenario():
        kept, own = adopted(), acquired()
        for process in (kept, own):
            process.worker.containment.brings_slot, process.worker.containment.slot = brings_slot, 5
            process.worker.says(ANNOUNCED)
            process.worker.says(ANNOUNCED)
        return kept, own

    kept, own = play(scenario)
    answer = Adopted(daemon_pid=os.getpid(), written=3, slot=slot, output_id="w-7")

    assert kept.worker.sent == [answer] * 2
    assert kept.services.hub.opened == [("s", POLICY.event_buffer_size, 0)]
    assert (len(own.worker.sent), own.services.hub.opened) == (2, [])


def test_who_looks_while_the_disk_is_full_is_refused_what_the_agent_refuses():
    """A refusal leans on nothing that is not stored."""

    async def scenario():
        process = acquired()
        process.owner.looks("c-1")
        process.worker.says(Write(records=(), completed=(), number=1))
        process.services.journal.health.turn(Condition.FULL, "no room")
        process.worker.says(Refusal(id="c-1", code="usage_error", message="no", details=b"\x80"))
        return [command_id for command_id, _ in process.owner.replies]

    assert play(scenario) == ["c-1"]


@pytest.mark.parametrize(("is_full", "early"), [(True, [("c-1", b"done")]), (False, [])])
def test_while_the_disk_is_full_an_outcome_does_not_wait_for_its_write(is_full, early):
    """The session knows to whom it is sent: what the journal had no room for was not accepted."""

    async def scenario():
        process = acquired()
        if is_full:
            process.services.journal.health.turn(Condition.FULL, "no room")
        process.worker.says(
            Write(records=(), completed=(Completed(id="c-1", frame=b"done"),), number=2)
        )
        return process.owner.early

    assert play(scenario) == early


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_settles_with_a_write_is_answered_when_that_is_stored(is_stored):
    """Or failed, where the journal does not even take it: then the process is ended."""

    async def scenario():
        process = acquired()
        process._acks = Acks()
        stored = asyncio.get_running_loop().create_future()

        def append(_write):
            if not is_stored:
                raise JournalFailed("no room")
            return stored

        process.services.journal.answers[AppendRecords] = append
        settled = (Completed(id="c-1", frame=b"done"),)
        process.worker.says(Write(records=(), completed=settled, number=2))
        before = list(process.owner.replies)
        stored.set_result(None)
        await settle()
        return before, process

    before, process = play(scenario)
    ((command_id, frame),) = process.owner.replies

    assert command_id == "c-1"
    if is_stored:
        assert (before, frame, process._acks.heard) == ([], b"done", [2])
    else:
        assert (type(frame).__name__, process.worker.signals) == ("FailedReply", [9])
