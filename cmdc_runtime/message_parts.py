"""What stands for an image or a file in a message, and how much there may be of them.

A ``MessagePart`` says what it is, how large, and where in the text it stands. Its bytes are kept
once, by their SHA-256, where sessions are kept; records, events and answers have the part alone.
What a caller gives is in ``content``, which looks at the bytes; here is what any process checks.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from cmdc_runtime.checked_struct import Checked, Count
from cmdc_runtime.plain import short, text_problem

# --- bounds ---------------------------------------------------------------------------------------

PART_BYTES_MAX: Final = 16 * 2**20
"""Of one image or file: no vendor takes a larger one in a request."""
PROMPT_PARTS_MAX: Final = 32
"""Images and files of one prompt."""
PROMPT_PARTS_BYTES_MAX: Final = 24 * 2**20
"""Of those of one prompt together, and of what one request carries of all: 32 MiB as base64, which
is what vendors take."""
SESSION_PARTS_MAX: Final = 1_000
"""Images and files that are kept for one session, each once."""
SESSION_PARTS_BYTES_MAX: Final = 128 * 2**20
"""Of those together; a session moves as one file of twice that."""
PART_NAME_CHARS_MAX: Final = 255
"""Of a part's name: what file systems take."""
URL_CHARS_MAX: Final = 2_048
"""Of an address; servers take no longer ones."""
MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9*][a-z0-9.+*-]{0,63}")
"""``type/subtype`` in small letters, without parameters."""
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
"""A SHA-256."""
PDF: Final = "application/pdf"

Medium = Literal["image", "image_url", "pdf", "pdf_url"]
"""What a model may take beside text, by its bytes or by its address; text files are text."""

WORDS_OF_MEDIA: Final[Mapping[Medium, str]] = {
    "image": "images",
    "image_url": "images by address",
    "pdf": "PDFs",
    "pdf_url": "PDFs by address",
}
"""The words for each, for people."""

# --- parts ----------------------------------------------------------------------------------------


class MessagePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=Checked):
    """An image or a file of a message; it stands behind the first ``at`` characters of the text.

    ``digest`` is the SHA-256 of its bytes, of which there are ``size``; both are empty where it is
    known by its ``url`` alone.
    """

    media_type: str
    name: str = ""
    digest: str = ""
    size: Count = 0
    url: str = ""
    at: Count = 0

    @property
    def medium(self) -> Medium | None:
        """What a model has to take to be given it; None: it is given as text."""
        if self.media_type.startswith("image/"):
            return "image_url" if self.url else "image"
        if self.media_type == PDF:
            return "pdf_url" if self.url else "pdf"
        return None

    def __str__(self) -> str:
        """Return it in a few words: what it is, its name, how large."""
        kind = "image" if self.media_type.startswith("image/") else "file"
        facts = [self.name, self.media_type, f"{self.size:,} bytes" if self.size else ""]
        return f"{kind} {', '.join(filter(None, facts))}"


def parts_problem(parts: Sequence[MessagePart], text_chars: int) -> str | None:
    """Return what is wrong with the parts of a message of so many characters, or None."""
    if len(parts) > PROMPT_PARTS_MAX:
        return parts_count_problem(len(parts))
    for place, part in enumerate(parts):
        if (problem := _problem(part, text_chars)) is not None:
            return f"parts[{place}]: {problem}"
    total = sum(part.size for part in parts)
    if total > PROMPT_PARTS_BYTES_MAX:
        return (
            f"the images and files of a prompt have at most {PROMPT_PARTS_BYTES_MAX:,} bytes"
            f" together, these have {total:,}: send some with the next prompt, or make them smaller"
        )
    return None


def parts_count_problem(count: int) -> str:
    """Return what is said of a prompt with so many parts, which are too many."""
    return (
        f"{count} images and files, and a prompt takes at most {PROMPT_PARTS_MAX}: send the rest"
        " with the next prompt"
    )


def size_problem(size: int) -> str | None:
    """Return why so many bytes are none of a part, or None."""
    if size == 0:
        return "it is empty"
    if size > PART_BYTES_MAX:
        return (
            f"at most {PART_BYTES_MAX:,} bytes are taken, it has {size:,}: make it smaller, or let"
            " a tool read it"
        )
    return None


def media_type_problem(media_type: str) -> str | None:
    """Return why something can be no media type, or None."""
    if MEDIA_TYPE.fullmatch(media_type) is not None:
        return None
    return f"media_type: expected one such as image/png, got {short(media_type)}"


def _problem(part: MessagePart, text_chars: int) -> str | None:
    if (problem := media_type_problem(part.media_type)) is not None:
        return problem
    named = text_problem(part.name, chars_max=PART_NAME_CHARS_MAX, one_line=True)
    if named is not None:
        return f"name: {named}"
    if not 0 <= part.at <= text_chars:
        return f"at: expected a place in the text of {text_chars} characters, got {part.at}"
    if part.url:
        return _url_problem(part)
    if DIGEST.fullmatch(part.digest) is None:
        return "digest: expected the SHA-256 of its bytes in hex"
    return size_problem(part.size)


def _url_problem(part: MessagePart) -> str | None:
    if part.digest or part.size:
        return "it has an address, and a digest or a size too"
    if part.medium is None:
        return f"url: nobody reads a file of {part.media_type} at its address: give its text"
    return url_problem(part.url)


def url_problem(url: str) -> str | None:
    """Return why a model's vendor cannot be given an address, or None."""
    problem = text_problem(url, chars_max=URL_CHARS_MAX, one_line=True)
    if problem is None and not re.fullmatch(r"https?://[^\s/]+\S*", url):
        problem = "expected https:// and the rest of an address, without blanks"
    return None if problem is None else f"url: {problem}"
