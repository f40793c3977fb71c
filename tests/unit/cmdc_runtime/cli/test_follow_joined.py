"""``cmdc tail`` shows the pieces of a text as one, and folds lines between words."""

import pytest

from cmdc_runtime.cli.follow import JOINED_CHARS_MAX, JoinedPieces, TailEntry
from cmdc_runtime.events import AgentAbort, Envelope, MessageDelta, PromptReceived, ThinkingDelta

WORDS = "The quick brown fox jumps over the lazy dog and then over a supercalifragilistic fence. "


def envelope(index, event):
    return Envelope(session_id="s", index=index, at_ms=1_700_000_000_000 + index, event=event)


def shown(*events):
    """Return number, kind and text of what is shown of events, to their end."""
    joined, entries = JoinedPieces(), []
    for index, event in enumerate(events, 1):
        entries += joined.take(envelope(index, event))
    entries += joined.close()
    assert not joined.is_open
    return [(one.index, one.event.kind, one.text) for one in entries]


def test_pieces_of_a_text_are_one_line_under_the_first_number():
    """Another event, or a text of another kind, ends it; spaces between pieces stay."""
    found = shown(
        ThinkingDelta(delta="Hm"),
        ThinkingDelta(delta=". "),
        MessageDelta(delta="Two "),
        MessageDelta(delta="files"),
        AgentAbort(command_id="c", reason="no"),
        MessageDelta(delta="More"),
    )

    assert [(one[0], one[1]) for one in found] == [
        (1, "thinking_delta"),
        (3, "message_delta"),
        (5, "agent_abort"),
        (6, "message_delta"),
    ]
    assert [found[at][2] for at in (0, 1, 3)] == ["Hm.", "Two files", "More"]


def test_a_text_that_is_long_is_shown_in_parts_and_loses_nothing():
    """What is held has a bound, whatever the model says."""
    pieces = [MessageDelta(delta=f"{number:04} ") for number in range(1_000)]
    found = shown(*pieces)

    assert len(found) >= 5
    assert max(len(text) for _, _, text in found) <= JOINED_CHARS_MAX
    assert " ".join(text for _, _, text in found).split() == [f"{n:04}" for n in range(1_000)]


@pytest.mark.parametrize("columns", [30, 60, 80, 132])
def test_lines_end_between_words(columns):
    """A line fits unless one word does not, and holds whole words only."""
    event = MessageDelta(delta=WORDS * 3)
    lines = TailEntry(12, 1_700_000_000_000, event, (WORDS * 3).strip()).lines(columns)
    texts = ["".join(piece.text for piece in line).rstrip() for line in lines]
    words = [word for text in texts for word in text.split()]

    assert words[3:] == (WORDS * 3).split()
    assert [
        text for text in texts[1:] if len(text) > max(columns, 7 + len("supercalifragilistic"))
    ] == []


def test_a_pipe_gets_a_line_for_each():
    """Programs read lines: nothing is folded there."""
    event = PromptReceived(command_id="c", text=WORDS * 5, queued=False)
    [line] = TailEntry(1, 1_700_000_000_000, event, WORDS * 5).lines(None)

    assert WORDS.strip() in "".join(piece.text for piece in line)
