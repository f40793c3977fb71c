"""What is written into a slot of the heartbeat board is read again; nothing in it is trusted."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.heartbeats import (
    HEARTBEAT_WORD,
    PERIOD_S_MAX,
    PERIOD_S_MIN,
    SLOT_BYTES,
    TEXT_BYTES_MAX,
    TOOLS_MAX,
    WORD_BYTES,
    Activity,
    Heartbeat,
    Slot,
    Usage,
    greeting_step,
    packed_step,
    period_for,
    read,
)

NOW_NS = 10**12
SEQUENCE_AT = 5 * WORD_BYTES
TEXT_AT = SLOT_BYTES - TEXT_BYTES_MAX
WORDS = st.text(st.characters(exclude_categories=[]), max_size=200)


@pytest.fixture
def memory():
    """Return the memory of one slot that was just taken."""
    return memoryview(bytearray(SLOT_BYTES))


def test_an_untouched_slot_has_never_beaten(memory):
    """Zeros are a beat like any other, with nothing in it."""
    assert read(memory, NOW_NS) == Heartbeat(0, Usage(), 0, Activity())


def test_what_was_written_is_read(memory):
    """Numbers and text, and the newest of each."""
    slot, usage = Slot(memory), Usage(50 * 2**20, 1_500_000, 20_000)
    slot.write_heartbeat(NOW_NS - 2, Usage())
    slot.write_heartbeat(NOW_NS - 1, usage)
    slot.index(17)
    slot.set_activity(Activity("idle"))
    slot.set_activity(Activity("executing_tools", 3, ("shell call_1", "grep call_2")))
    activity = Activity("executing_tools", 3, ("shell call_1", "grep call_2"))

    assert read(memory, NOW_NS) == Heartbeat(NOW_NS - 1, usage, 17, activity)


def test_a_heartbeat_without_news_changes_the_time_alone(memory):
    """What was used stands as it was."""
    slot, usage = Slot(memory), Usage(50 * 2**20, 1_500_000, 20_000)
    slot.write_heartbeat(NOW_NS - 2, usage)
    slot.repeat_heartbeat(NOW_NS - 1)

    assert read(memory, NOW_NS) == Heartbeat(NOW_NS - 1, usage, 0, Activity())


def test_the_heartbeat_is_the_word_that_a_scan_reads(memory):
    """The daemon looks at this word alone, in all slots at once."""
    Slot(memory).write_heartbeat(NOW_NS, Usage())

    assert memory.cast("Q")[HEARTBEAT_WORD] == NOW_NS


def test_a_heartbeat_of_the_future_is_one_of_now(memory):
    """Nobody gains time by a clock that he made up."""
    Slot(memory).write_heartbeat(2**64 - 1, Usage(2**64 - 1, 0, 0))
    beat = read(memory, NOW_NS)

    assert beat.heartbeat_ns == NOW_NS
    assert beat.usage.max_rss_bytes == 2**63 - 1


@given(
    WORDS, st.integers(0, 2**31), st.lists(st.one_of(WORDS, st.just("shell c" * 9)), max_size=40)
)
def test_every_doing_fits(state, turns, tools):
    """What is too long is cut, what has no room is counted, and the rest is as it was."""
    memory = memoryview(bytearray(SLOT_BYTES + WORD_BYTES))
    Slot(memory).set_activity(Activity(state, turns, tuple(tools)))
    activity = read(memory[:SLOT_BYTES], NOW_NS).activity
    written = [tool[:100].encode(errors="replace").decode() for tool in tools]
    kept = len(activity.tools) - (
        len(activity.tools) < len(tools) or list(activity.tools) != written
    )

    assert activity.state == state[:32].encode(errors="replace").decode()
    assert activity.turns == turns
    assert list(activity.tools[:kept]) == written[:kept]
    assert activity.tools[kept:] == (
        (f"and {len(tools) - kept} more",) if kept < len(tools) else ()
    )
    assert bytes(memory[SLOT_BYTES:]) == bytes(WORD_BYTES)


def test_what_is_opened_has_room_beside_everything_else(memory):
    """It names what killed, so nothing may displace it."""
    tools = tuple("t" * 200 for _ in range(TOOLS_MAX))
    step = packed_step("f" * 32)
    Slot(memory).set_activity(Activity("s" * 32, 2**31, tools, step))

    assert read(memory, NOW_NS).activity.opening == step


def test_opening_packed_code_and_greeting_what_was_in_it_are_two_steps():
    """Whatever the digests are."""
    last = packed_step("f" * 32)

    assert last < greeting_step("0" * 32) < greeting_step("f" * 32) < 2**63


def test_half_a_character_is_replaced(memory):
    """JSON can bring one into the id of a call, and no text of ours may have it."""
    Slot(memory).set_activity(Activity("running", 1, ("shell \ud800",)))

    assert read(memory, NOW_NS).activity.tools == ("shell ?",)


def test_tools_without_room_are_counted_in_the_last_place(memory):
    """A reader knows that there were more."""
    tools = tuple(f"t{at}" for at in range(TOOLS_MAX + 4))
    Slot(memory).set_activity(Activity("executing_tools", 1, tools))

    assert read(memory, NOW_NS).activity.tools == (*tools[:TOOLS_MAX], "and 4 more")


@given(st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES))
def test_any_memory_is_a_heartbeat(content):
    """A worker may write what it likes, and no reader is harmed."""
    beat = read(memoryview(bytearray(content)), NOW_NS)

    assert 0 <= beat.heartbeat_ns <= NOW_NS
    assert beat.activity == Activity()


@given(st.binary(max_size=TEXT_BYTES_MAX))
def test_any_text_is_a_doing(text):
    """Also one with a checksum that is right: it is empty unless it is an Activity."""
    memory = memoryview(bytearray(SLOT_BYTES))
    slot = Slot(memory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cmdc_runtime.heartbeats._fitting", lambda _doing: text)
        slot.set_activity(Activity())

    assert isinstance(read(memory, NOW_NS).activity, Activity)


def test_a_text_that_is_being_written_is_not_read(memory):
    """The sequence number is odd while it changes, and after a death in the midst of it."""
    Slot(memory).set_activity(Activity("idle"))
    memory[SEQUENCE_AT : SEQUENCE_AT + WORD_BYTES].cast("Q")[0] += 1

    assert read(memory, NOW_NS).activity == Activity()


def test_a_text_that_is_half_another_one_is_not_read(memory):
    """The checksum shows it, where the order of the stores has not."""
    Slot(memory).set_activity(Activity("running", 1, ("shell call_1",)))
    memory[TEXT_AT + 3] ^= 1

    assert read(memory, NOW_NS).activity == Activity()


def test_a_writer_that_comes_after_a_torn_text_mends_it(memory):
    """A new writer makes the sequence number even again."""
    memory[SEQUENCE_AT] = 7
    Slot(memory).set_activity(Activity("idle"))

    assert read(memory, NOW_NS).activity == Activity("idle")


def test_a_reader_sees_one_text_or_none_while_another_is_written(memory):
    """Never the beginning of one with the end of another."""
    said = {Activity(word * 8, at, (word * 90,) * at) for at, word in enumerate("abcd")}
    stop, slot = threading.Event(), Slot(memory)

    def write():
        while not stop.is_set():
            for activity in said:
                slot.set_activity(activity)

    writer = threading.Thread(target=write)
    writer.start()
    seen = {read(memory, NOW_NS).activity for _ in range(5_000)}
    stop.set()
    writer.join()

    assert seen <= said | {Activity()}


def test_a_released_slot_keeps_what_was_written(memory):
    """It is evidence; only the writer's hold on the memory is gone."""
    slot = Slot(memory)
    slot.set_activity(Activity("streaming"))
    slot.release()

    assert read(memory, NOW_NS).activity == Activity("streaming")
    memory.release()


@pytest.mark.parametrize(
    ("limit_s", "period_s"),
    [(0.5, PERIOD_S_MIN), (3.0, 0.5), (30.0, PERIOD_S_MAX), (1_000_000.0, PERIOD_S_MAX)],
)
def test_beats_come_several_times_in_a_limit(limit_s, period_s):
    """But neither too often nor so seldom that they show nothing."""
    assert period_for(limit_s) == period_s
