"""What a prompt or a steering may hold, and how several become one message."""

import pytest

from cmdc_runtime.commands import PROMPT_CHARS_MAX
from cmdc_runtime.errors import InvalidPart, InvalidText
from cmdc_runtime.message_parts import MessagePart
from workers.core.message_content import joined, refused_content
from workers.core.state import Memory, Policy

IMAGE = MessagePart(media_type="image/png", digest="0" * 64, size=1)
PDF = MessagePart(media_type="application/pdf", digest="0" * 64, size=1, name="a.pdf")
NOTES = MessagePart(media_type="text/plain", digest="0" * 64, size=1)


def memory(*media):
    """Return the memory of a session whose model takes these, or of one that nobody knows."""
    return Memory(policy=Policy(media_of=lambda _model: frozenset(media) or None), model="m:m")


@pytest.mark.parametrize(
    ("text", "parts", "kind", "said"),
    [
        (" ", (), InvalidText, "only white space"),
        ("x" * (PROMPT_CHARS_MAX + 1), (IMAGE,), InvalidText, "at most 1000000"),
        ("", (MessagePart(media_type="image"),), InvalidPart, r"parts\[0\]: media_type"),
        ("", (IMAGE, PDF), InvalidPart, "a.pdf, .* bytes: m:m takes images and text alone.*switch"),
    ],
)
def test_what_is_nothing_for_the_model_is_refused(text, parts, kind, said):
    """With what it takes, and the way out."""
    refused = refused_content(memory("image"), text, parts)

    assert type(refused) is kind
    with pytest.raises(kind, match=said):
        raise refused


def test_a_model_that_takes_nothing_else_takes_texts():
    """A file of text is text."""
    blind = Memory(policy=Policy(media_of=lambda _model: frozenset()), model="m:m")

    assert refused_content(blind, "", (NOTES,)) is None
    assert "m:m takes text alone" in str(refused_content(blind, "", (IMAGE,)))


def test_a_model_that_nobody_knows_is_asked():
    """Its vendor decides."""
    assert refused_content(memory(), "", (IMAGE, PDF, NOTES)) is None


def test_several_are_one_with_each_part_in_its_place():
    """Where there is no text there is no empty line."""
    at = [MessagePart(media_type="image/png", url="https://a.b", at=one) for one in range(12)]

    assert joined([("one", ()), ("two", ())]) == ("one\n\ntwo", ())
    assert joined([("one", (at[3],)), ("", (at[0],)), ("two", (at[0], at[2]))]) == (
        "one\n\ntwo",
        (at[3], at[3], at[5], at[7]),
    )
    assert joined([("", (at[0],)), ("one", (at[3],))]) == ("one", (at[0], at[3]))
