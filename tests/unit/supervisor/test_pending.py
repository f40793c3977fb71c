"""The commands of one session that have no answer yet."""

import msgspec
import pytest

from cmdc_runtime.errors import CommandDropped, Overloaded
from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Deliver, FailedReply, ToClient
from supervisor.core.exits import DEATHS_MAX
from supervisor.core.limits import COMMANDS_PENDING_MAX, EARLY_ANSWERS_MAX
from supervisor.sessions.pending import PendingCommands


def command(name, *, durable=False):
    return Deliver(id=name, body=msgspec.Raw(name.encode()), durable=durable)


def keeping(*commands, is_sent=False):
    waiting = PendingCommands("s1")
    for one in commands:
        waiting.add(b"client", one, is_sent=is_sent)
    return waiting


def test_a_question_is_given_to_every_process_until_it_is_answered():
    """A process that dies with a question takes its answer along."""
    question = command("q")
    waiting = keeping(question, is_sent=True)

    assert waiting.take_unsent() == waiting.take_unsent() == [question]
    assert waiting.answered("q") == b"client"
    assert waiting.take_unsent() == []


def died(waiting, times=1):
    """Give processes what waits, and let each of them crash with it."""
    for _ in range(times):
        waiting.take_unsent()
        waiting.process_ended(crashed=True)


def test_what_processes_die_with_in_a_row_is_refused():
    """One death may be anything's doing; after the last one no other process is given it."""
    waiting = keeping(command("deadly"), is_sent=True)
    waiting.process_ended(crashed=True)
    died(waiting, DEATHS_MAX - 2)
    before = waiting.dropped()
    assert [one.id for one in waiting.take_unsent()] == ["deadly"]
    waiting.process_ended(crashed=True)
    [(client, refusal)] = waiting.dropped()
    reported = decode(ToClient, refusal)

    assert before == waiting.dropped() == waiting.take_unsent() == []
    assert isinstance(reported, FailedReply)
    assert (client, reported.id, reported.code) == (b"client", "deadly", CommandDropped.code)
    assert f"{DEATHS_MAX} processes of session s1 died" in reported.message
    assert waiting.early_answer("deadly") == refusal


def test_only_a_crash_with_it_in_hand_counts():
    """Not an end that was asked for, nor that of a process that was not given it yet."""
    waiting = keeping(command("q"))
    for _ in range(DEATHS_MAX + 1):
        waiting.process_ended(crashed=True)
        waiting.take_unsent()
        waiting.process_ended(crashed=False)

    assert waiting.dropped() == []


def test_a_look_and_a_durable_command_outlive_any_crash():
    """A look runs nobody's code; what the journal has is counted by the steps of it."""
    waiting = PendingCommands("s1")
    waiting.add(b"client", command("w"), is_sent=True, looks=True, waits=True)
    waiting.add(b"client", command("o", durable=True), is_sent=True)
    waiting.add(b"client", command("l"), is_sent=True, looks=True)
    waiting.add(b"client", command("q"), is_sent=True)
    died(waiting, DEATHS_MAX + 1)

    assert len(waiting.dropped()) == 1
    assert [waiting.has(one) for one in "wolq"] == [True, True, True, False]


def test_who_waits_for_the_session_looks_and_keeps_it_awake():
    """A reader may know the answer; but there may be none yet, so it is no look."""
    waiting = PendingCommands("s1")
    waiting.add(b"client", command("q"), is_sent=False, looks=True)
    before = waiting.needs_agent
    waiting.add(b"client", command("w"), is_sent=False, looks=True, waits=True)

    assert (before, waiting.needs_agent) == (False, True)
    assert [one.id for one in waiting.looks()] == ["q", "w"]
    assert (waiting.is_look("q"), waiting.is_look("w")) == (True, False)


def test_a_durable_command_is_given_once():
    """The journal gives it to every later process."""
    order = command("o", durable=True)
    waiting = keeping(order)

    assert waiting.take_unsent() == [order]
    assert waiting.take_unsent() == []
    assert len(waiting) == 1


def test_a_durable_command_that_a_process_has_is_not_given_again():
    """What that process leaves undone is in the next one's history."""
    assert keeping(command("o", durable=True), is_sent=True).take_unsent() == []


def test_who_asks_again_gets_the_answer():
    """A command is known by its id, whatever connection it comes by."""
    waiting = keeping(command("q"))

    assert waiting.renew(b"other", "q")
    assert not waiting.renew(b"other", "r")
    assert waiting.answered("q") == b"other"


def test_an_answer_that_nobody_waits_for_is_for_nobody():
    """The second answer to a command goes nowhere."""
    waiting = keeping(command("q"))
    waiting.answered("q")

    assert waiting.answered("q") is None


def test_at_the_end_everybody_hears_once():
    """Draining leaves nothing."""
    waiting = keeping(command("q"), command("o", durable=True))

    assert sorted(waiting.drain()) == [("o", b"client"), ("q", b"client")]
    assert len(waiting) == 0


def test_too_many_are_refused():
    """A new one is; one that waits already is asked for again without harm."""
    waiting = keeping(*(command(f"q{number}") for number in range(COMMANDS_PENDING_MAX)))
    waiting.check_room("q0")

    with pytest.raises(Overloaded, match="session s1"):
        waiting.check_room("new")


def test_what_is_answered_early_is_said_again_and_is_none_of_the_journals():
    """The journal answers for its own; of the others only the newest are remembered."""
    waiting = keeping(command("kept", durable=True), command("early"), is_sent=True)

    assert waiting.answered_early("kept", b"no") is None
    assert waiting.answered_early("gone", b"no") is None
    assert waiting.answered_early("early", b"done") == b"client"
    assert (waiting.early_answer("early"), waiting.early_answer("kept"), waiting.has("early")) == (
        b"done",
        None,
        False,
    )
    for number in range(EARLY_ANSWERS_MAX):
        waiting.add(b"client", command(f"q{number}"), is_sent=True)
        waiting.answered_early(f"q{number}", b"done")
    assert waiting.early_answer("early") is None
    assert waiting.early_answer("q0") == b"done"
