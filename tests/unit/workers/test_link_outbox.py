"""What a worker keeps until it hears that it is safe."""

from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.wire.frames import Batch
from workers.link import Outbox


def batch(first, count=1):
    return Batch(first=first, count=count, durable=False)


def test_what_is_safe_leaves_from_the_front():
    """Records wait for the journal, events for their publication, and the order stays."""
    box = Outbox()
    box.hold([b"a"], [], number=1)
    box.hold([b"bb"], [batch(5, 3)])
    box.hold([b"c"], [batch(8)], number=2)
    sizes = [box.size]
    box.ack(1, 6)
    sizes.append(box.size)
    assert list(box) == [[b"bb"], [b"c"]]
    box.ack(2, 7)
    assert (list(box), box.first_event(9)) == ([[b"c"]], 8)
    box.ack(2, 8)
    assert (list(box), box.first_event(9), sizes) == ([], 9, [4, 3])


def test_a_word_of_an_earlier_time_takes_nothing_back():
    """The daemon's words may be older than what is known."""
    box = Outbox()
    box.hold([b"a"], [], number=1)
    box.ack(1, 0)
    box.ack(0, 0)
    box.hold([b"b"], [], number=2)
    box.ack(0, 0)
    assert (box.written, list(box)) == (1, [[b"b"]])


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30),
    st.integers(0, 30),
    st.integers(0, 90),
)
def test_what_is_kept_is_all_that_is_not_safe_and_what_is_behind_it(messages, written, index):
    """Nothing is let go that was not acknowledged; the first event is the oldest that is kept."""
    box, next_index, number, sent = Outbox(), 1, 0, []
    for is_write, count in messages:
        number += is_write
        batches = [batch(next_index, count)] if count else []
        if not is_write and not batches:
            continue
        sent.append((number if is_write else 0, next_index + count - 1 if count else 0, next_index))
        box.hold([b"%d" % len(sent)], batches, number=number if is_write else 0)
        next_index += count
    box.ack(written, index)
    unsafe = [at for at, (own, last, _) in enumerate(sent) if own > written or last > index]
    kept = list(range(unsafe[0], len(sent))) if unsafe else []
    assert list(box) == [[b"%d" % (at + 1)] for at in kept]
    firsts = [sent[at][2] for at in kept if sent[at][1]]
    assert box.first_event(next_index) == (firsts[0] if firsts else next_index)
