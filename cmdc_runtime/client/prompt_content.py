"""A prompt as a caller gives it: a text, or texts, images and files in the order of their reading.

Looked at here is what the list holds and how much; what an image or a file is shows when it is read
(``content.read``), which may take the time of a disk.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from cmdc_runtime.client.arguments import checked_text
from cmdc_runtime.client.edge import parts_of
from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import InvalidPart, InvalidText
from cmdc_runtime.message_parts import PROMPT_PARTS_MAX, parts_count_problem
from cmdc_runtime.plain import short

CONTENT_MAX: Final = 1_000
"""Texts, images and files of one prompt, each counted."""


class Asked(NamedTuple):
    """A prompt as it was given: its text, and images and files with their places in it."""

    text: str
    given: tuple[tuple[int, Image | File], ...] = ()


def checked_content(content: object, what: str) -> Asked:
    """Return a prompt: a text, or a list of texts, images and files.

    Raises:
        InvalidText: there is no text and nothing else, or too much of it.
        InvalidPart: there are too many images and files, or one of them is none.

    """
    if isinstance(content, Image | File):
        kind = type(content).__name__
        raise InvalidText(
            f"a {what} is a str, or a list with images and files: give [cmdc.{kind}(…)]"
        )
    if not isinstance(content, list | tuple):
        return Asked(checked_text(content, what))
    texts: list[str] = []
    given: list[tuple[int, Image | File]] = []
    for at, one in enumerate(parts_of(content, what, CONTENT_MAX)):
        if isinstance(one, Image | File):
            given.append((len(_joined(texts)), one))
        elif isinstance(one, str):
            texts.append(one)
        else:
            raise InvalidPart(
                f"{what}[{at}]: expected a str, a cmdc.Image or a cmdc.File, got {short(one)}"
            )
    if len(given) > PROMPT_PARTS_MAX:
        raise InvalidPart(parts_count_problem(len(given)))
    text = _joined(texts)
    return Asked(text if given and not text.strip() else checked_text(text, what), tuple(given))


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts))
