"""Ids of spans that two processes compute for themselves."""

from cmdc_runtime.ids import branch_ref
from cmdc_runtime.tracing import (
    SpanParent,
    branch_span_id,
    call_span_id,
    cycle_span_id,
    trace_id_of,
)


def test_a_parent_is_written_as_w3c_has_it():
    """Version, trace, span and the flag that says sampled; what is written can be read."""
    parent = SpanParent("ab" * 16, "cd" * 8)

    assert str(parent) == f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert SpanParent.parse(str(parent)) == parent


def test_a_trace_is_a_cycle_of_a_topmost_session():
    """Each cycle has its own, and a child of it the same, however deep."""
    own = trace_id_of("s", "c-1", None)
    below = str(SpanParent(own, call_span_id("s", "c-1")))

    assert own == trace_id_of("s", "c-1", None)
    assert len({own, trace_id_of("s", "c-2", None), trace_id_of("t", "c-1", None)}) == 3
    assert trace_id_of("s.1", "c-9", below) == own


def test_every_span_has_an_id_of_its_own():
    """Whatever the same word names, and in whichever session."""
    found = [
        made(session, "x")
        for made in (cycle_span_id, call_span_id, branch_span_id)
        for session in ("s", "s.1")
    ]
    refs = [branch_span_id("s", branch_ref("x", name)) for name in ("a", "b")]

    assert len({*found, *refs}) == 8
    assert all(len(bytes.fromhex(one)) == 8 for one in found)
