"""What a command hides by plain encodings: ``printf`` formats, base64, hexadecimal, backwards.

It decodes what a command line has in front of its own decoder, so that it can be looked at as if it
stood there openly.
"""

import base64
import binascii
import itertools
import re
from collections.abc import Iterator
from typing import Final

from workers.builtin.shell.reader import Command, Reading

_ESCAPE: Final = re.compile(r"\\(?:0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|(.))")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_DIRECTIVE: Final = re.compile(r"%(?:%|[-+ 0#]*\d*(?:\.\d+)?[bscdiq])")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}")
_HEXADECIMAL: Final = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:]*){2,}")
_DECODERS: Final = frozenset({"base64", "base32", "openssl", "xxd", "rev", "uudecode", "basenc"})
ENCODED_MAX: Final = 64
"""Pieces of one command that are decoded."""


def printed(command: Command) -> str:
    """Return what ``echo`` and ``printf`` write, as far as their arguments say; "" for others."""
    args = [word.text for word in command.words[1:]]
    if command.name == "echo":
        while args and re.fullmatch("-[neE]+", args[0]):
            args.pop(0)
        return _unescaped(" ".join(args))
    if command.name != "printf" or not args:
        return ""
    form, *values = args
    filled, left = "", list(values)
    for _ in range(len(values) + 1):
        before = len(left)
        filled += _DIRECTIVE.sub(lambda found: _filled(found[0], left), _unescaped(form))
        if not left or len(left) == before:
            break
    return filled


def _filled(directive: str, left: list[str]) -> str:
    if directive == "%%":
        return "%"
    value = left.pop(0) if left else ""
    return _unescaped(value) if directive.endswith("b") else value


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_char, text)


def _char(found: re.Match[str]) -> str:
    octal, hexadecimal, code, letter = found.groups()
    if octal:
        return chr(int(octal, 8) & 0xFF)
    if digits := hexadecimal or code:
        return chr(int(digits, 16))
    return _LETTERS.get(letter, "\\" + letter)


def decoded(reading: Reading) -> Iterator[str]:
    """Yield the texts that the command's own decoders would write, where it has one."""
    decoders = {command.name for command in reading.details} & _DECODERS
    if not decoders:
        return
    texts = [text for command in reading.details for text in _sources(command)]
    for text in texts[:ENCODED_MAX]:
        if "rev" in decoders:
            yield text[::-1]
        for piece in itertools.islice(_BASE64.findall(text), ENCODED_MAX):
            yield from _decoded(piece)
        for piece in itertools.islice(_HEXADECIMAL.findall(text), ENCODED_MAX):
            yield bytes.fromhex(re.sub(r"[\s:]", "", piece)).decode("utf-8", "replace")


def _sources(command: Command) -> Iterator[str]:
    yield printed(command)
    if command.stdin:
        yield command.stdin
    yield from (word.text for word in command.words[1:])


def _decoded(piece: str) -> Iterator[str]:
    padded = piece.rstrip("=") + "=" * (-len(piece.rstrip("=")) % 4)
    try:
        yield base64.b64decode(
            padded, altchars=b"-_" if "-" in piece or "_" in piece else None
        ).decode()
    except (binascii.Error, ValueError):
        return
