"""The text of an error, cut before any other code reads it.

A server that has said "200" tells what goes wrong in an event of the stream. What is done with the
text of an error costs more than its size, and only its beginning is of use.
"""

import functools
import json
from collections.abc import Callable
from typing import Final

ERROR_BYTES_MAX: Final = 64 * 2**10
"""Of an error, as the body of an answer or as an event in it: the rest is not looked at."""
TEXT_CHARS_MAX: Final = 8_192
"""Of the text of an error, or of a member of one: the rest is cut off before anything else."""
MEMBERS_MAX: Final = 6
"""Of an error that is cut: the first ones. Vendors send four at most."""
NAME_CHARS_MAX: Final = 64
_MARK: Final = b'"error"'


def may_be_long_error(event: bytes) -> bool:
    """Say whether an event is so long that it is to be cut where it is an error."""
    return len(event) > ERROR_BYTES_MAX and _MARK in event


def cut_error(told: dict[str, object]) -> bool:
    """Leave of an event that is an error what says so; say whether it is one."""
    error = told.get("error")
    if not error:
        return False
    kind = told.get("type")
    told.clear()
    if isinstance(kind, str):
        told["type"] = kind[:NAME_CHARS_MAX]
    if isinstance(error, dict):
        members = list(error.items())[:MEMBERS_MAX]
        told["error"] = {name[:NAME_CHARS_MAX]: _cut(member) for name, member in members}
    else:
        told["error"] = _cut(error)
    return True


def _cut(member: object) -> object:
    if member is None or isinstance(member, bool | int | float):
        return member
    return (member if isinstance(member, str) else json.dumps(member))[:TEXT_CHARS_MAX]


def with_cut_text(redact: Callable[[str], str]) -> Callable[[str], str]:
    """Return ``redact``, which gets the beginning of a text instead of all of it."""

    @functools.wraps(redact)
    def cut_and_redact(text: str) -> str:
        return redact(text[:TEXT_CHARS_MAX])

    return cut_and_redact
