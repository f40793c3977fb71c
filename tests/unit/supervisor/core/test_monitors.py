"""Who is notified of an end, and how often; what a client learns from the count of its notices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.reasons import Down, Normal, Signal
from supervisor.core.monitors import Monitor, Monitors, RecordedDown, Tally

KILLED = Signal(number=9, name="SIGKILL")


def monitor(ref="r", session_id="s", client=b"c", *, persistent=False):
    return Monitor(ref, session_id, client, persistent)


def end(seq, *, session_id="s", incarnation=1, restarting=True, reason=KILLED):
    """Return an end as the session reports it."""
    down = Down(
        ref="",
        session_id=session_id,
        reason=reason,
        incarnation=incarnation,
        restarting=restarting,
    )
    return RecordedDown(down, seq)


def watching(*given_monitors, newest=0):
    """Return books in which these monitors watch."""
    monitors = Monitors()
    for one in given_monitors:
        monitors.start(monitors.open(one, 0), newest)
    return monitors


def notified(notices):
    return [(notice.client, notice.down.ref, notice.seq) for notice in notices]


def test_a_notice_says_all_that_is_known():
    """Which monitor, which process of which session, why, and what this monitor had before."""
    monitors = watching(monitor("r1", persistent=True), newest=3)
    (first,) = monitors.fire(end(7), 1)
    (second,) = monitors.fire(end(9, incarnation=2), 2)
    right = Down(ref="r1", session_id="s", reason=KILLED, incarnation=1, restarting=True)

    assert first == (b"c", right, 7, 3)
    assert (second.down.incarnation, second.seq, second.after) == (2, 9, 7)


def test_each_monitor_is_notified_once():
    """In the order in which they were set; the next end of the session is not theirs."""
    monitors = watching(monitor("r1"), monitor("r2", client=b"d"), monitor("r3", "other"))

    assert notified(monitors.fire(end(1), 1)) == [(b"c", "r1", 1), (b"d", "r2", 1)]
    assert (monitors.fire(end(2), 2), len(monitors)) == ([], 1)
    assert ("r1" in monitors, "r3" in monitors) == (False, True)


@pytest.mark.parametrize("restarting", [True, False])
def test_a_persistent_monitor_stays_until_the_last_end(restarting):
    """Every process of the session, and then no more."""
    monitors = watching(monitor(persistent=True))

    assert len(monitors.fire(end(1, restarting=restarting), 1)) == 1
    assert ("r" in monitors) == restarting
    assert len(monitors.fire(end(2, restarting=False), 2)) == restarting
    assert monitors.fire(end(3), 3) == []


def test_what_was_reported_before_is_not_for_a_new_monitor():
    """Also when its record is done only then."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 0, after=4)

    assert monitors.fire(end(11), 4) == []
    assert monitors.start(state, 11) == []
    assert monitors.fire(end(12), 4) == []
    assert notified(monitors.fire(end(13), 5)) == [(b"c", "r", 13)]
    assert state.since == 11


def test_what_ends_while_it_is_set_is_held():
    """It is reported when the monitor starts, also when the journal knew of it by then."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 0, after=4)
    assert monitors.fire(end(11), 5) == []
    assert monitors.fire(end(12, incarnation=2), 6) == []
    notices = monitors.start(state, 12)

    assert [(notice.seq, notice.after) for notice in notices] == [(11, 10), (12, 11)]
    assert state.since == 10


def test_what_has_no_record_is_reported_to_who_watches():
    """It has no number, so the next one follows what was recorded before it."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 0)
    monitors.fire(end(None), 1)
    (held,) = monitors.start(state, 3)
    (live,) = monitors.fire(end(None, incarnation=2), 2)
    (recorded,) = monitors.fire(end(5, incarnation=3), 3)

    assert [(one.seq, one.after) for one in (held, live, recorded)] == [
        (None, 3),
        (None, 3),
        (5, 3),
    ]


def test_what_is_held_with_and_without_a_record_is_reported_in_its_order():
    """A number of one says what is older than it, whatever stands before it."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 0)
    for seq in (None, 11, None):
        monitors.fire(end(seq), 1)

    assert [(one.seq, one.after) for one in monitors.start(state, 12)] == [
        (None, 10),
        (11, 10),
        (None, 11),
    ]


def test_what_is_not_for_one_monitor_may_be_for_the_next():
    """One that was lost and is set again wants to know of what others need not."""
    monitors = Monitors()
    later = monitors.open(monitor("later"), 0, after=4)
    again = monitors.open(monitor("again", client=b"d"), 0)
    monitors.start(later, 0)
    monitors.start(again, 0)

    assert notified(monitors.fire(end(1), 4)) == [(b"d", "again", 1)]


def test_who_sets_it_again_gets_what_was_recorded():
    """And once only what is also held: of each end the first notice counts."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 3)
    monitors.fire(end(6), 9)
    recorded = monitors.give(state, [end(4), end(6)])
    monitors.fire(end(7), 10)
    started = monitors.start(state, 6)

    assert [(one.seq, one.after) for one in recorded] == [(4, 3), (6, 4)]
    assert [(one.seq, one.after) for one in started] == [(7, 6)]


def test_who_set_it_once_gets_the_first_of_what_was_recorded():
    """The rest is not for it."""
    monitors = Monitors()
    state = monitors.open(monitor(), 3)

    assert notified(monitors.give(state, [end(4), end(6)])) == [(b"c", "r", 4)]
    assert monitors.start(state, 6) == []
    assert len(monitors) == 0


def test_a_session_that_is_over_is_reported_at_once():
    """And the monitor is gone; the answer says that it watched from just before."""
    monitors = Monitors()
    state = monitors.open(monitor(persistent=True), 0)
    monitors.start(state, 8)
    (notice,) = monitors.conclude(state, end(8, restarting=False, reason=Normal()))

    assert (notice.seq, notice.after, state.since) == (8, 7, 7)
    assert monitors.conclude(state, end(8, restarting=False)) == []
    assert len(monitors) == 0


def test_an_end_without_a_record_is_reported_at_once():
    """A session that was never seen, for example."""
    monitors = Monitors()
    state = monitors.open(monitor(), 0)
    monitors.start(state, 2)
    (notice,) = monitors.conclude(state, end(None, restarting=False))

    assert (notice.seq, notice.after, state.since) == (None, 2, 2)


def test_nothing_comes_after_a_removal():
    """An unknown reference is forgotten already; what is being set is forgotten, too."""
    monitors = watching(monitor("r1"), monitor("r2"))
    state = monitors.open(monitor("r3"), 0)
    for ref in ("r1", "r1", "r3"):
        monitors.remove(ref)

    assert notified(monitors.fire(end(1), 1)) == [(b"c", "r2", 1)]
    assert (monitors.start(state, 0), monitors.holds(state)) == ([], False)
    assert (len(monitors), set(monitors.clients)) == (0, set())


def test_setting_it_again_renews_the_connection():
    """A client that comes back is notified on its new connection, once."""
    monitors = watching(monitor(client=b"old"), monitor(client=b"new"))

    assert len(monitors) == 1
    assert notified(monitors.fire(end(1), 1)) == [(b"new", "r", 1)]


def test_a_reference_names_one_monitor():
    """Set again for another session it is gone from the first."""
    monitors = watching(monitor("r", "s"), monitor("r", "t"))

    assert monitors.fire(end(1), 1) == []
    assert notified(monitors.fire(end(2, session_id="t"), 2)) == [(b"c", "r", 2)]


def test_only_the_same_monitor_is_found():
    """Of the same client, for the same session, in the same way, and only when it watches."""
    monitors = watching(monitor())
    found = monitors.find(monitor())
    monitors.open(monitor("r2"), 0)

    assert found is not None
    for other in (monitor(persistent=True), monitor(client=b"d"), monitor("r2"), monitor("r3")):
        assert monitors.find(other) is None


def test_a_client_that_is_gone_is_forgotten():
    """With all its monitors, and nobody else's; one without any is forgotten already."""
    monitors = watching(monitor("r1"), monitor("r2", "t"), monitor("r3", client=b"d"))
    monitors.forget(b"c")
    monitors.forget(b"e")

    assert set(monitors.clients) == {b"d"}
    assert notified(monitors.fire(end(1), 1)) == [(b"d", "r3", 1)]


def test_a_client_counts_as_the_daemon_does():
    """Each notice is one more; other clients' do not matter."""
    tally = Tally(counts_max=10)
    before = tally.ask(b"c", 0.0)
    tally.ask(b"d", 0.0)
    for client in (b"c", b"d", b"c"):
        tally.add(client, 0.0)

    assert tally.ask(b"c", 0.0) == before + 2


def test_a_notice_has_the_number_that_its_client_counts_up_to():
    """It is one more than that of the answer or the notice before."""
    tally = Tally(counts_max=10)
    before = tally.ask(b"c", 0.0)

    assert [tally.add(b"c", 0.0) for _ in range(2)] == [before + 1, before + 2]


def test_a_count_that_was_forgotten_begins_above_all_others():
    """Else who has missed a notice could find the number that it has counted up to."""
    tally = Tally(counts_max=10)
    before = tally.ask(b"c", 0.0)
    tally.drop(b"c")

    assert tally.is_silent(b"c", 0.0)
    assert tally.ask(b"c", 0.0) > before


def test_counts_are_bounded_and_who_asks_keeps_its_own():
    """The one who has not asked for longest is forgotten first."""
    tally = Tally(counts_max=2)
    before = tally.ask(b"c", 0.0)
    for client in (b"d", b"c", b"e"):
        tally.ask(client, 0.0)

    assert [tally.is_silent(client, 0.0) for client in (b"c", b"d", b"e")] == [False, True, False]
    assert tally.ask(b"c", 0.0) == before


def test_a_client_that_does_not_ask_is_silent():
    """Who is unknown is silent, too."""
    tally = Tally(counts_max=10)
    tally.ask(b"c", 5.0)

    assert (tally.is_silent(b"c", 5.0), tally.is_silent(b"c", 6.0)) == (False, True)
    assert tally.is_silent(b"d", 0.0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["heard", "lost", "asks", "forgotten"]), st.sampled_from([b"c", b"d", b"e"])
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 3))
def test_a_lost_notice_is_always_found_out(steps, counts_max):
    """Whatever was forgotten meanwhile: who lost one never finds its own count."""
    tally = Tally(counts_max)
    heard = {client: tally.ask(client, 0.0) for client in (b"c", b"d", b"e")}
    lost = dict.fromkeys(heard, False)
    for step, client in steps:
        if step == "forgotten":
            tally.drop(client)
        elif step == "asks":
            number = tally.ask(client, 0.0)
            assert not (lost[client] and number == heard[client])
            heard[client], lost[client] = number, False
        else:
            tally.add(client, 0.0)
            heard[client] += step == "heard"
            lost[client] |= step == "lost"
