"""What ``cmdc replay`` prints of what the player says."""

import pytest

from cmdc_runtime.cli.replay import ReplayFailed, _lines, _text
from cmdc_runtime.cli.terminal import Terminal

STANDS = {"state": "idle", "turn": 2, "queue": 0, "calls": 1, "tokens": 9, "cost_usd": 0.5}
STEP = {
    "kind": "step",
    "first": 3,
    "last": 5,
    "at_ms": 0,
    "input": "order",
    "ref": "c-\x1b[2J",
    "records": ["said", "cycle_ended"],
    "stands": STANDS,
}
OTHERWISE = {
    "kind": "difference",
    "number": 4,
    "at_ms": 0,
    "input": "order",
    "ref": "c-1",
    "recorded": {"record": "said", "text": "\x1b[2J"},
    "now": None,
}


def shown(capsys, fact):
    _text(Terminal(), fact)
    return capsys.readouterr().out


def test_a_step_is_one_line(capsys):
    """Numbers, how the session stands, what it came of, what it recorded; no cursor moves."""
    said = shown(capsys, STEP)

    assert said == (
        "      3-5 idle            turn 2 queue 0 calls 1 tokens 9 $0.5000  order c-␛[2J"
        " -> said, cycle_ended\n"
    )


def test_a_difference_shows_both_sides(capsys):
    """What was recorded, and what would be now."""
    said = shown(capsys, OTHERWISE)

    assert "record 4: today's code decides otherwise" in said
    assert 'recorded: {"record":"said","text":"\\u001b[2J"}' in said
    assert "now:      nothing" in said


def test_what_cannot_be_played_is_said(capsys):
    """With the reason."""
    said = shown(capsys, {"kind": "unplayable", "number": 4, "why": "too old"})

    assert said == "record 4: it can't be played from here: too old\n"


@pytest.mark.parametrize(
    ("count", "passed", "last"),
    [
        (7, 0, "7 records, the same\n"),
        (3, 0, "3 of 7 records, the same; then not\n"),
        (3, 4, "3 of 7 records, the same; 4 were passed over\n"),
        (2, 4, "2 of 7 records, the same; then not\n"),
    ],
    ids=["all", "some", "all that were not passed over", "some of those"],
)
def test_the_last_line_counts(capsys, count, passed, last):
    """All of them, or how far it went; before it stands the state that was asked for."""
    end = {"kind": "end", "records": count, "of": 7, "passed_over": passed}
    end["state"] = {"model": "x:m"}

    assert shown(capsys, end) == f'model: "x:m"\n{last}'


def test_what_is_set_aside_is_said(capsys):
    """With the reason, and how many records go with it."""
    fact = {"kind": "set_aside", "what": "snapshot", "why": "it\nkills", "passed_over": 5}

    assert shown(capsys, fact) == (
        "the snapshot is set aside: it kills\n"
        "  passed over: 5 records, up to the one that says so\n"
    )


def test_a_fork_is_named(capsys):
    """Its id is what one goes on with."""
    assert "session s-2 goes on" in shown(capsys, {"kind": "forked", "session_id": "s-2"})


def test_a_player_that_dies_is_an_error():
    """It ends with one of two words; silence is neither."""
    with pytest.raises(ReplayFailed, match="died"):
        list(_lines([b'{"kind":"step"}\n']))
