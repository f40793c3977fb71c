"""What a person is asked, and what a line of theirs means."""

import io
import sys

import pytest

from cmdc_runtime.cli.questions import AbsentUser, TerminalUser, decision_in, response_in
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.events import ApprovalRequired, AskUser

WANTED = ApprovalRequired(
    id="a-1",
    tool="shell",
    args={"command": "ls"},
    hint="",
    requested_at_ms=1,
    session_id="s1",
    call_id="c1",
)
COLOURS = ("red", "dark \x1bgreen")


def question(*options):
    return AskUser(session_id="s1", question="Which?", options=options, ref="c1:ask-0")


@pytest.fixture(name="person")
def _person(monkeypatch):
    """Make a person who types these lines."""

    def typing(text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return TerminalUser(Terminal())

    return typing


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("y", "approve_once"),
        (" YES ", "approve_once"),
        ("a", "approve_always"),
        ("always", "approve_always"),
        ("n", "reject"),
        ("no", "reject"),
        ("", None),
        ("yep", None),
    ],
    ids=repr,
)
def test_decision_is_a_word(line, decision):
    """Nothing but a clear word allows or refuses a call."""
    assert decision_in(line) == decision


@pytest.mark.parametrize(
    ("line", "response"),
    [
        ("1", "red"),
        (" 2 ", "blue"),
        ("3", "3"),
        ("0", "0"),
        ("01", "01"),
        ("a shade of 1", "a shade of 1"),
        ("  ", None),
    ],
    ids=repr,
)
def test_number_is_an_option(line, response):
    """The number of an option means it; everything else is the person's own words."""
    assert response_in(line, ("red", "blue")) == response


def test_number_is_text_where_there_are_no_options():
    """An open question can be answered with a number."""
    assert response_in("1\n", ()) == "1"


def test_unclear_line_is_asked_again(person, capsys):
    """A person who was not understood is asked once more."""
    found = person("maybe\n\ny\n").decision(WANTED)

    assert found == "approve_once"
    assert capsys.readouterr().err.count("allow it?") == 3


def test_end_of_input_leaves_a_call_undecided(person):
    """Ctrl-D is neither leave nor refusal."""
    assert person("").decision(WANTED) is None


def test_options_are_numbered(person, capsys):
    """Options are shown with the numbers that stand for them, as text that obeys nothing."""
    found = person("2\n").response(question(*COLOURS))
    shown = capsys.readouterr().err

    assert found == COLOURS[1]
    assert "  1. red\n  2. dark \u241bgreen\n" in shown


def test_end_of_input_is_no_answer(person):
    """A call waits for the answer, so Ctrl-D ends the cycle as Ctrl-C does."""
    with pytest.raises(KeyboardInterrupt):
        person("\n").response(question())


@pytest.mark.parametrize(
    ("is_kept", "said"),
    [(True, "`cmdc approve s1 a-1` allows it"), (False, "--keep")],
    ids=["kept", "not kept"],
)
def test_bystander_says_who_can_decide(is_kept, said, capsys):
    """Where nobody sits, the way to decide is named: it needs a session that goes on."""
    found = AbsentUser(Terminal(), is_kept=is_kept).decision(WANTED)

    assert found is None
    assert said in capsys.readouterr().err


def test_bystander_says_how_to_answer(capsys):
    """A question waits, so it can be answered from elsewhere in any case."""
    found = AbsentUser(Terminal(), is_kept=False).response(question())

    assert found is None
    assert "`cmdc respond s1 c1:ask-0 TEXT` answers it" in capsys.readouterr().err
