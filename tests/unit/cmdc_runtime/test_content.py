"""What an image or a file is, by how its bytes begin."""

import hashlib
from pathlib import Path

import pytest

from cmdc_runtime.content import File, Image, read
from cmdc_runtime.errors import InvalidPart
from cmdc_runtime.message_parts import (
    PART_BYTES_MAX,
    PROMPT_PARTS_MAX,
    MessagePart,
    parts_problem,
)

PNG = b"\x89PNG\r\n\x1a\n..."
PART = MessagePart(media_type="image/png", digest="0" * 64, size=1)


@pytest.mark.parametrize(
    ("given", "media_type", "name"),
    [
        (Image(PNG), "image/png", ""),
        (Image(b"\xff\xd8\xff\xe0..."), "image/jpeg", ""),
        (Image(b"GIF89a..."), "image/gif", ""),
        (Image(bytearray(b"RIFF\0\0\0\0WEBPVP8 ")), "image/webp", ""),
        (Image(memoryview(PNG), media_type="image/png"), "image/png", ""),
        (File(PNG, name="what.pdf"), "image/png", "what.pdf"),
        (File(b"%PDF-1.7 ..."), "application/pdf", ""),
        (File(b"a,b", name="a.csv"), "text/csv", "a.csv"),
        (File(b"{}", media_type="application/json"), "application/json", ""),
        (File("ä".encode(), name="image.png"), "text/plain", "image.png"),
        (File(b"x", name="x" * 300), "text/plain", "x" * 255),
    ],
)
def test_bytes_say_what_they_are(given, media_type, name):
    """A name says which kind of text, and nothing else."""
    body = bytes(given.source)
    digest = hashlib.sha256(body).hexdigest()

    assert read(given, 3) == (
        MessagePart(media_type=media_type, name=name, digest=digest, size=len(body), at=3),
        body,
    )


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_path_is_read(tmp_path, as_path):
    """Its last part is the name, unless another is given."""
    path = tmp_path / "a.md"
    path.write_bytes(b"# A")
    part, body = read(File(as_path(path)), 0)

    assert (part.name, part.media_type, body) == ("a.md", "text/markdown", b"# A")
    assert read(File(as_path(path), name="b"), 0)[0].name == "b"


@pytest.mark.parametrize(
    ("given", "media_type"),
    [
        (Image("https://example.org/a.png?x=1"), "image/png"),
        (Image("http://example.org/picture"), "image/*"),
        (Image("https://example.org/picture", media_type="image/webp"), "image/webp"),
        (File("https://example.org/a.pdf"), "application/pdf"),
        (File("https://example.org/a.jpeg"), "image/jpeg"),
    ],
)
def test_an_address_is_passed_on(given, media_type):
    """Nobody opens it here; what it leads to is what the caller or its ending says."""
    part, body = read(given, 0)

    assert (part.url, part.media_type, part.digest, body) == (given.source, media_type, "", b"")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Image(b"text"), "begins with b'text'"),
        (Image(b"%PDF-1"), "give it as a cmdc.File"),
        (Image("https://example.org/a.pdf"), "no image: give it as a cmdc.File"),
        (Image("https://" + "a" * 2_048), "at most 2,048"),
        (Image("https://[1/a.png"), "url: "),
        (Image(PNG, media_type="PNG"), "expected one such as image/png, got 'PNG'"),
        (Image(PNG, media_type=1), "expected a str, got 1"),
        (File(b"text", media_type="application/pdf"), "application/pdf, and it is a text"),
        (File(b"a\0b"), "none of what is taken"),
        (File(b"\xc3"), "none of what is taken"),
        (File("/"), "Is a directory"),
        (File("a\0b"), "null"),
    ],
)
def test_what_is_none_is_refused(given, said):
    """With what it is, and what would be right."""
    with pytest.raises(InvalidPart, match=said):
        read(given, 0)


def test_no_more_is_read_of_a_file_than_may_be_sent(tmp_path):
    """A file of any length costs no more memory."""
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(PART_BYTES_MAX * 100)

    with pytest.raises(InvalidPart, match="16,777,216 bytes are taken, it has 16,777,217"):
        read(File(path), 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"media_type": "image"}, "parts[0]: media_type: expected one such as image/png"),
        ({"name": "a\nb"}, "name: it has the control character"),
        ({"at": 5}, "at: expected a place in the text of 4 characters, got 5"),
        ({"at": -1}, "got -1"),
        ({"digest": "0"}, "SHA-256"),
        ({"size": 0}, "it is empty"),
        ({"size": PART_BYTES_MAX + 1}, "at most 16,777,216 bytes"),
        ({"url": "https://example.org"}, "and a digest or a size too"),
        ({"url": "file:///etc/passwd", "digest": "", "size": 0}, "expected https://"),
        (
            {"media_type": "text/plain", "url": "https://e.org", "digest": "", "size": 0},
            "nobody reads",
        ),
    ],
)
def test_a_part_of_any_client_is_checked(changes, said):
    """Whoever sends it: the agent asks the same before it is recorded."""
    fields = {name: getattr(PART, name) for name in PART.__struct_fields__} | changes

    assert said in parts_problem([MessagePart(**fields)], 4)


def test_a_prompt_has_a_bound():
    """Of its parts, and of their bytes."""
    large = MessagePart(media_type="image/png", digest="0" * 64, size=PART_BYTES_MAX)

    assert parts_problem([PART] * PROMPT_PARTS_MAX, 0) is None
    assert "at most 32" in parts_problem([PART] * (PROMPT_PARTS_MAX + 1), 0)
    assert "25,165,824 bytes together, these have 33,554,432" in parts_problem([large] * 2, 0)
