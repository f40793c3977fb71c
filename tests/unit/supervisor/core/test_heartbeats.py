"""Who is silent, reported to nobody's harm: not by a pause of the judge, and not too late."""

from itertools import accumulate, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.heartbeats import (
    DUMP_WAIT_S,
    GAP_S,
    LOOK_S,
    NEXT,
    AskForStack,
    Judge,
    Sign,
    Silent,
    Trust,
)

S = 1_000_000_000
INTERVAL = round(LOOK_S * S)
DUMP_WAIT = round(DUMP_WAIT_S * S)
GAP_MAX = INTERVAL + round(GAP_S * S)
START = 1_000 * S
LIMIT = 30 * S


def watching(*keys, limit_s=30.0, now=START):
    """Return a judge that watches each key by the slot of its place."""
    judge = Judge()
    for slot, key in enumerate(keys):
        judge.watch(key, slot, limit_s, now)
    return judge


def looks(judge, since, until, heartbeats, step=INTERVAL):
    """Look from ``since`` to ``until``, and return each verdict with its time."""
    return [
        (now, verdict)
        for now in range(since, until, step)
        for verdict in judge.look(now, heartbeats)
    ]


def test_every_trust_meets_every_sign():
    """The table is total: a missing pair is added to NEXT in supervisor/core/heartbeats.py."""
    assert set(NEXT) == set(product(Trust, Sign))


def test_who_beats_is_not_reported():
    """However long it goes on."""
    judge = watching("a")
    verdicts = [judge.look(now, [now - S]) for now in range(START, START + 300 * S, INTERVAL)]

    assert not any(verdicts)


def test_who_is_silent_is_asked_and_then_reported_once():
    """First for the stack, a second later for good; never again after that."""
    judge = watching("a")
    verdicts = looks(judge, START, START + 100 * S, [START + 1])

    assert verdicts == [
        (START + LIMIT + INTERVAL, AskForStack("a")),
        (START + LIMIT + INTERVAL + DUMP_WAIT, Silent("a", 31_499)),
    ]


def test_who_never_beat_is_judged_from_when_it_was_watched():
    """The zeros of a fresh slot are no heartbeat of long ago."""
    judge = watching("a")
    verdicts = looks(judge, START, START + 100 * S, [0])

    assert verdicts[0] == (START + LIMIT, AskForStack("a"))
    assert verdicts[1] == (START + LIMIT + DUMP_WAIT, Silent("a", 31_000))


def test_who_beats_after_the_question_is_forgiven():
    """It is asked again when it falls silent again."""
    judge = watching("a")
    first = looks(judge, START, START + LIMIT + INTERVAL, [0])
    again = looks(judge, START + LIMIT + INTERVAL, START + 100 * S, [START + LIMIT + 1])

    assert [verdict for _, verdict in first] == [AskForStack("a")]
    assert again[0] == (START + 2 * LIMIT + INTERVAL, AskForStack("a"))


def test_a_beat_between_two_late_looks_forgives_too():
    """Even if it is older than the limit when it is seen."""
    judge = watching("a", limit_s=0.5)
    judge.look(START + S, [0])
    verdicts = judge.look(START + 2 * S, [START + S + 1])

    assert verdicts == []
    assert judge.look(START + 2 * S + 1, [START + S + 1]) == [AskForStack("a")]


def test_who_is_condemned_stays_so():
    """Its end is on the way: a late heartbeat changes nothing."""
    judge = watching("a")
    looks(judge, START, START + 40 * S, [0])

    assert looks(judge, START + 40 * S, START + 200 * S, [START + 40 * S]) == []


def test_a_beat_of_the_future_is_one_of_now():
    """It gives no credit: silence counts again as soon as the clock is there."""
    judge = watching("a")
    ahead = START + 10 * S
    verdicts = looks(judge, START, START + 100 * S, [ahead])

    assert verdicts[0] == (ahead + LIMIT, AskForStack("a"))


def test_who_is_not_watched_is_not_reported():
    """Not even if it was asked already; and to forget a stranger is fine."""
    judge = watching("a", "b")
    looks(judge, START, START + LIMIT + INTERVAL, [0, 0])
    judge.unwatch("a")
    judge.unwatch("stranger")
    verdicts = looks(judge, START + LIMIT + INTERVAL, START + 40 * S, [0, 0])

    assert [verdict.key for _, verdict in verdicts] == ["b"]
    assert len(judge) == 1


def test_watching_again_starts_anew():
    """With the new limit: a spare that becomes an agent."""
    judge = watching("a")
    looks(judge, START, START + LIMIT + INTERVAL, [0])
    judge.watch("a", 0, 2.0, START + LIMIT + INTERVAL)
    verdicts = looks(judge, START + LIMIT + INTERVAL, START + 40 * S, [0])

    assert verdicts[0] == (START + LIMIT + INTERVAL + 2 * S, AskForStack("a"))


def test_the_shortest_limit_sets_the_interval():
    """Looks come in time for it, and as before when it is gone."""
    judge = watching("a", "b")
    usual = judge.interval_s
    judge.watch("c", 2, 0.6, START)
    judge.watch("d", 3, 0.6, START)
    judge.unwatch("c")
    short = judge.interval_s
    judge.unwatch("d")

    assert (usual, short, judge.interval_s) == (LOOK_S, 0.15, LOOK_S)
    assert Judge().interval_s == LOOK_S


@pytest.mark.parametrize("away", [GAP_MAX + 1, 30 * S, 10**6 * S])
def test_after_a_pause_of_the_judge_everybody_starts_anew(away):
    """Also who was asked for its stack right before."""
    judge = watching("a", "b")
    looks(judge, START, START + LIMIT + INTERVAL, [0, START + 20 * S])
    back = START + LIMIT + away
    verdicts = looks(judge, back, back + 100 * S, [0, START + 20 * S])

    assert verdicts[:2] == [(back + LIMIT, AskForStack("a")), (back + LIMIT, AskForStack("b"))]


def test_a_look_that_is_a_little_late_is_no_pause():
    """A busy machine pardons nobody."""
    judge = watching("a")
    verdicts = looks(judge, START, START + 60 * S, [0], step=GAP_MAX)

    assert verdicts[0][0] == START + LIMIT


def test_time_before_anybody_was_watched_is_no_pause():
    """Nobody looks then, and the first one watched is judged as usual."""
    judge = watching("a")
    judge.unwatch("a")
    judge.watch("a", 0, 30.0, START + 500 * S)
    verdicts = looks(judge, START + 500 * S + INTERVAL, START + 600 * S, [0])

    assert verdicts[0] == (START + 500 * S + LIMIT, AskForStack("a"))


def test_a_judge_that_is_always_late_finds_the_silent_all_the_same():
    """Each look counts for the time that the judge meant to be away."""
    judge = watching("a")
    late = 2 * GAP_MAX
    verdicts = looks(judge, START + late, START + 100 * late, [0], step=late)

    assert [type(verdict) for _, verdict in verdicts] == [AskForStack, Silent]
    assert verdicts[1][0] <= START + late * (LIMIT + DUMP_WAIT + 3 * INTERVAL) // INTERVAL


AWAY = st.integers(1, 5) | st.integers(2_000, 10**8)  # milliseconds: late, or a pause


@given(st.lists(st.tuples(AWAY, st.integers(1, LIMIT // S - 1)), max_size=20))
def test_a_pause_is_charged_to_nobody_who_beats_within_the_period_after(pauses):
    """Whatever the length of the pauses, and whether the process is paused with the judge."""
    judge, now, heartbeats, verdicts = watching("a"), START, [0], []
    for away_ms, answer_s in pauses:
        now += away_ms * S // 1_000
        verdicts += judge.look(now, heartbeats)
        verdicts += [verdict for _, verdict in looks(judge, now, now + answer_s * S, heartbeats)]
        now += answer_s * S
        heartbeats = [now]
        verdicts += judge.look(now, heartbeats)

    assert verdicts == []


def test_who_does_not_beat_after_a_pause_gets_just_the_time_of_the_next_one_back():
    """A judge that is away again and again does not keep the silent from being found."""
    judge, pause = watching("a"), 1_000 * S
    back = START + pause
    looks(judge, back, back + 20 * S, [0])
    again = back + 20 * S + pause
    verdicts = looks(judge, again, again + 100 * S, [0])

    assert verdicts[0] == (again + 10 * S, AskForStack("a"))


def test_the_wait_for_a_stack_gets_its_time_back_too():
    """A pause is no time to write a stack in, if the process was paused as well."""
    judge, pause = watching("a"), 1_000 * S
    back = START + pause
    looks(judge, back, back + LIMIT + 1, [0])
    again = back + LIMIT + pause
    verdicts = looks(judge, again, again + 100 * S, [0])

    assert verdicts == [(again + INTERVAL, Silent("a", 31_000))]


@given(
    st.integers(S // 2, 100 * S),
    st.lists(st.integers(1, INTERVAL), min_size=1, max_size=50),
    st.lists(st.integers(1, S // 2), max_size=20),
)
def test_a_silent_one_is_found_in_time(limit, steps, lives):
    """Within the limit, two intervals and the wait for the stack, however the looks fall."""
    judge = watching("a", limit_s=limit / S)
    interval = round(judge.interval_s * S)
    heartbeats = [START, *accumulate(lives, initial=START)]
    last, now, verdicts, turn = heartbeats[-1], START, [], 0
    while now < last + 2 * (limit + DUMP_WAIT):
        heartbeat = max(one for one in heartbeats if one <= max(now, START))
        verdicts += [(now, verdict) for verdict in judge.look(now, [heartbeat])]
        now += min(steps[turn % len(steps)], interval) if len(steps) > 1 else interval
        turn += 1
        if turn > 500:  # tiny steps say no more than the first 500
            steps = [interval]
    found = [at for at, verdict in verdicts if isinstance(verdict, Silent)]

    assert len(found) == 1
    assert found[0] <= last + limit + 2 * interval + DUMP_WAIT
    assert [type(verdict) for _, verdict in verdicts[-2:]] == [AskForStack, Silent]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["look", "look", "look", "heartbeat", "watch", "unwatch"]),
            st.integers(0, 2),
            st.integers(0, 3 * S),
        ),
        max_size=120,
    )
)
def test_nobody_is_condemned_out_of_turn(steps):
    """Only who is watched, was asked a whole wait ago, and has not beaten since; and only once."""
    judge, now, heartbeats = Judge(), START, [0, 0, 0]
    watched, asked, done = set(), {}, set()
    for what, one, away in steps:
        now += away
        if what == "watch":
            judge.watch(one, one, 2.0, now)
            watched.add(one)
            asked.pop(one, None)
            done.discard(one)
        elif what == "unwatch":
            judge.unwatch(one)
            watched.discard(one)
        elif what == "heartbeat":
            heartbeats[one] = now
            asked.pop(one, None)
        else:
            for verdict in judge.look(now, heartbeats):
                assert verdict.key in watched - done
                if isinstance(verdict, AskForStack):
                    asked[verdict.key] = now
                else:
                    assert now - asked[verdict.key] >= DUMP_WAIT
                    assert verdict.silent_ms >= 2_000
                    done.add(verdict.key)


def test_a_limit_that_was_replaced_hurries_nobody():
    """Looks cost time; those for the old limit end with it."""
    judge = watching("a", limit_s=0.6)
    judge.watch("a", 0, 30.0, START)

    assert judge.interval_s == LOOK_S


def test_the_silent_one_is_found_behind_one_that_beats():
    """Whoever comes first in the list."""
    judge = watching("lively", "silent", "lively too")
    verdicts = [
        verdict
        for now in range(START, START + 2 * LIMIT, INTERVAL)
        for verdict in judge.look(now, [now, START, now])
    ]

    assert [type(verdict) for verdict in verdicts] == [AskForStack, Silent]
    assert {verdict.key for verdict in verdicts} == {"silent"}
