"""Images and files as a caller gives them: what they are is known from how their bytes begin.

A name says nothing that counts: ``photo.png`` that holds a JPEG is a JPEG, and one that holds none
of ``IMAGES`` is refused. Files are PDFs, images, or texts in UTF-8; which kind of text, the name
says. An address is passed on to the model's vendor and never opened here, so what it leads to is
what the caller, or its ending, says.

``read`` is for a thread of its own: it may wait for a disk.
"""

import hashlib
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from cmdc_runtime.errors import InvalidPart
from cmdc_runtime.message_parts import (
    MEDIA_TYPE,
    PART_BYTES_MAX,
    PART_NAME_CHARS_MAX,
    PDF,
    MessagePart,
    media_type_problem,
    size_problem,
    url_problem,
)
from cmdc_runtime.plain import short

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What every vendor takes."""
TEXT: Final = "text/plain"
_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF),
)
_SHOWN_BYTES: Final = 8
_TAKEN: Final = "images are PNG, JPEG, GIF and WebP; files are these, PDFs and texts in UTF-8"
_ANY_IMAGE: Final = "image/*"
"""Of an image that is known by an address whose ending says nothing."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image for the model, in a list with the texts of a prompt.

    ``source`` is a path, the bytes, or an address (``https://…``), which the model's vendor opens.
    ``media_type`` is read from the bytes; one that is given has to agree with them.
    """

    source: str | Path | bytes = field(repr=False)
    media_type: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class File:
    """A file for the model, in a list with the texts of a prompt: a PDF, an image, a text.

    ``source`` is as for ``Image``. ``name`` is what the model reads of it, by default that of the
    path or the address.
    """

    source: str | Path | bytes = field(repr=False)
    name: str | None = field(default=None, kw_only=True)
    media_type: str | None = field(default=None, kw_only=True)


Content: TypeAlias = str | Sequence[str | Image | File]
"""What a prompt may be: a text, or texts, images and files in the order in which they are read."""


def read(given: Image | File, at: int) -> tuple[MessagePart, bytes]:
    """Return what stands for an image or a file behind ``at`` characters, and its bytes.

    Of an address the bytes are empty.

    Raises:
        InvalidPart: it is none, it can't be read, or it is too large.
    """
    _check_words(given)
    source, name = given.source, given.name if isinstance(given, File) else None
    if isinstance(source, str) and source.startswith("data:"):
        raise InvalidPart(f"{type(given).__name__}: an address that holds its data: give the bytes")
    if isinstance(source, str) and "://" in source:
        return _addressed(given, source, name, at), b""
    if isinstance(source, bytes | bytearray | memoryview):
        body = bytes(source)
    elif isinstance(source, str | Path):
        body, name = _from_disk(given, Path(source)), name or PurePath(source).name
    else:
        raise _refused(given, f"source: expected a path, bytes or an address, got {short(source)}")
    if (problem := size_problem(len(body))) is not None:
        raise _refused(given, problem)
    media_type = _media_type(given, body, name)
    digest = hashlib.sha256(body).hexdigest()
    name = (name or "")[-PART_NAME_CHARS_MAX:]
    return MessagePart(media_type=media_type, name=name, digest=digest, size=len(body), at=at), body


def _check_words(given: Image | File) -> None:
    for what in ("name", "media_type"):
        value: object = getattr(given, what, None)
        if value is not None and not isinstance(value, str):
            raise _refused(given, f"{what}: expected a str, got {short(value)}")
    wanted = given.media_type
    if wanted is not None and (problem := media_type_problem(wanted)) is not None:
        raise _refused(given, problem)


def _addressed(given: Image | File, url: str, name: str | None, at: int) -> MessagePart:
    if (problem := url_problem(url)) is not None:
        raise _refused(given, problem)
    try:
        path = urlsplit(url).path
    except ValueError as error:
        raise _refused(given, f"url: {error}") from error
    guessed = given.media_type or mimetypes.guess_type(path)[0]
    if isinstance(given, Image):
        guessed = guessed or _ANY_IMAGE
    if guessed is None:
        raise _refused(given, "its address does not say what it is: give media_type")
    is_image = guessed.startswith("image/")
    if isinstance(given, Image) and not is_image:
        raise _refused(given, f"{guessed} is no image: give it as a cmdc.File")
    if not is_image and guessed != PDF:
        raise _refused(given, f"no vendor opens the address of {guessed}: give its bytes")
    return MessagePart(media_type=guessed, name=name or PurePath(path).name, url=url, at=at)


def _from_disk(given: Image | File, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(PART_BYTES_MAX + 1) if path.stat().st_size else b""
    except (OSError, ValueError) as error:
        raise _refused(given, f"{path}: {error}") from error


def _media_type(given: Image | File, body: bytes, name: str | None) -> str:
    """Return what bytes are; a text is what the caller says, or the ending of its name."""
    wanted, found = given.media_type, _kind_of(body)
    if found is None:
        if isinstance(given, Image) or not _is_text(body):
            begun = body[:_SHOWN_BYTES]
            raise _refused(
                given, f"it begins with {begun!r}, which is none of what is taken: {_TAKEN}"
            )
        if wanted is not None and (wanted == PDF or wanted.startswith("image/")):
            raise _refused(given, f"media_type: {wanted}, and it is a text")
        guessed = wanted or mimetypes.guess_type(name or "")[0] or TEXT
        is_text = guessed != PDF and not guessed.startswith("image/")
        return guessed if is_text and MEDIA_TYPE.fullmatch(guessed) else TEXT
    if isinstance(given, Image) and found not in IMAGES:
        raise _refused(given, f"it is {found}: give it as a cmdc.File")
    if wanted not in (None, found):
        raise _refused(given, f"media_type: {wanted}, and its bytes are {found}")
    return found


def _kind_of(body: bytes) -> str | None:
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _BEGINNINGS if body.startswith(begin)), None)


def _is_text(body: bytes) -> bool:
    if b"\0" in body:
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refused(given: Image | File, problem: str) -> InvalidPart:
    source = given.source
    named = f" {source!s}"[:201] if isinstance(source, str | Path) else ""
    kind = type(given).__name__
    return InvalidPart(f"{kind}{named}: {problem}")
