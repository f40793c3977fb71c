"""What a prompt may hold: a text, and images and files that the model is not known to refuse."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from cmdc_runtime.commands import PROMPT_CHARS_MAX
from cmdc_runtime.errors import CmdcError, InvalidPart, InvalidText
from cmdc_runtime.message_parts import WORDS_OF_MEDIA, Medium, MessagePart, parts_problem
from workers.core.state import Memory


def refused_content(memory: Memory, text: str, parts: Sequence[MessagePart]) -> CmdcError | None:
    """Return why a text with images and files is nothing for the model, or None."""
    if problem := text_problem(text, is_alone=not parts):
        return InvalidText(problem)
    if parts and (problem := _unseen_problem(memory, text, parts)):
        return InvalidPart(problem)
    return None


def joined(
    contents: Iterable[tuple[str, Sequence[MessagePart]]],
) -> tuple[str, tuple[MessagePart, ...]]:
    """Return contents as one, each behind an empty line, with its parts in their places."""
    text, parts = "", list[MessagePart]()
    for added, with_parts in contents:
        text += "\n\n" if text and added else ""
        parts += (replace(one, at=len(text) + one.at) for one in with_parts)
        text += added
    return text, tuple(parts)


def text_problem(text: str, *, is_alone: bool = True) -> str | None:
    """Say what is wrong with a text for the model, or None; beside an image it may be empty."""
    if is_alone and not text.strip():
        return "a prompt needs text; got only white space"
    if len(text) > PROMPT_CHARS_MAX:
        return f"a prompt has at most {PROMPT_CHARS_MAX} characters, got {len(text)}"
    return None


def _unseen_problem(memory: Memory, text: str, parts: Sequence[MessagePart]) -> str | None:
    """Say which image or file the model is known not to take, or what is wrong with one, or None.

    Of a model that nobody knows, its vendor decides.
    """
    if problem := parts_problem(parts, len(text)):
        return problem
    media = memory.policy.media_of(memory.model)
    for part in parts:
        if media is not None and part.medium is not None and part.medium not in media:
            return (
                f"{part}: {memory.model} takes {_taken(media)}, so nothing was sent: switch_model"
                " to one that takes it"
            )
    return None


def _taken(media: Collection[Medium]) -> str:
    listed = ", ".join(words for one, words in WORDS_OF_MEDIA.items() if one in media)
    return f"{listed} and text alone" if listed else "text alone"
