"""With which write an agent's whole state goes to the journal."""

from cmdc_runtime.messages import Message
from cmdc_runtime.wire.frames import JournalRecord
from workers import agent
from workers.agent import Saver
from workers.core.snapshot import SNAPSHOT_RECORDS, Unsaved, encode, restore
from workers.core.state import Asking, Cycle, Memory
from workers.core.step import Step

REST = Step(Memory(model="x:m", messages=(Message.user("hi"),)))
BUSY = Step(Memory(cycle=Cycle("p-1", 0, None), activity=Asking()))


def records(count=1, body=b"record"):
    return [JournalRecord(kind="said", body=body)] * count


def test_the_first_rest_after_so_many_records_is_written_down():
    """A cycle in the middle of which the number is reached is waited for."""
    saver = Saver(Unsaved(records=SNAPSHOT_RECORDS - 2, size=1_000))

    assert saver.snapshot(REST, records()) == b""
    assert saver.snapshot(BUSY, records()) == b""
    taken = saver.snapshot(REST, records())
    assert restore(Memory(), taken) == REST.memory
    assert saver.snapshot(REST, records()) == b""


def test_the_next_one_comes_after_as_many_again():
    """The count begins anew."""
    saver = Saver(Unsaved(records=SNAPSHOT_RECORDS, size=1_000))
    assert saver.snapshot(REST, records())
    taken = [saver.snapshot(REST, records()) for _ in range(SNAPSHOT_RECORDS)]

    assert [bool(one) for one in taken] == [False] * (SNAPSHOT_RECORDS - 1) + [True]


def test_a_state_that_is_too_large_stays_in_its_records(monkeypatch):
    """It is left out, and not tried again at each rest."""
    monkeypatch.setattr(agent, "SNAPSHOT_BYTES_MAX", len(encode(REST.memory)) + 5)
    saver = Saver(Unsaved(records=SNAPSHOT_RECORDS, size=1_000))

    assert saver.snapshot(REST, records(body=b"123456")) == b""
    assert saver.snapshot(REST, records(body=b"1")) == b""
    assert Saver(Unsaved(records=SNAPSHOT_RECORDS, size=1_000)).snapshot(REST, records(body=b"1"))
