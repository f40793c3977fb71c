"""Lines of JSON that MCP servers send, where decoders don't take them as they are. Pure.

A text that is no UTF-8 is mended. What of a line can still be known where no decoder takes it is
whose answer it was to be: its top level is looked over for the id, token by token, whatever the
rest is, and within a bound.
"""

import itertools
import json
import re
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.plain import mended

TOKENS_MAX: Final = 200_000
"""Of a line, that are looked at for its id; it takes 0.1 s."""
ID_BYTES_MAX: Final = 256
"""Of an id; ours are short."""

# A text may end with the line. Nothing of it is looked at twice.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}:,]|[^\s"\[\]{}:,]++', re.DOTALL)
_NUMBER: Final = re.compile(rb"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Unread:
    """An answer that no decoder takes: of what, and where in its line that stands."""

    id: int | str
    begin: int
    end: int
    line: bytes

    def under(self, number: int | str) -> bytes:
        """Return the line with another id, and as unreadable as it was."""
        line = self.line
        # The blank keeps it from being taken for a line that begins in a way of our own.
        return b" " + line[: self.begin] + json.dumps(number).encode() + line[self.end :].rstrip()


def mended_line(line: bytes) -> bytes | None:
    """Return a line of JSON with U+FFFD for what is no character in it; None: it is no JSON.

    Half a surrogate pair, as an escape, is what decoders refuse a whole line for; so are bytes that
    are no UTF-8.
    """
    try:
        found = json.loads(line.decode(errors="replace"))
        text = json.dumps(found, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return mended(text).encode()


def unread(line: bytes) -> Unread | None:
    """Return which answer a line that can't be read was to be; None: it is none, or does not say.

    It is one where its top level has the protocol's name and an id, and no method.
    """
    keys: dict[bytes, re.Match[bytes]] = {}
    depth, key, last = 0, b"", b""
    for one in itertools.islice(_TOKEN.finditer(line), TOKENS_MAX):
        first = line[one.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and first == ord(":"):
            key = last
        elif depth == 1 and key:
            keys[key], key = one, b""
        elif depth == 1:
            last = one[0] if one.end() - one.start() <= ID_BYTES_MAX else b""
    found = keys.get(b'"id"')
    if not line.lstrip().startswith(b"{") or found is None or b'"jsonrpc"' not in keys:
        return None
    own = None if b'"method"' in keys else _id_of(found[0])
    return None if own is None else Unread(own, found.start(), found.end(), line)


def _id_of(token: bytes) -> int | str | None:
    if _NUMBER.fullmatch(token):
        return int(token)
    if not token.startswith(b'"') or len(token) > ID_BYTES_MAX:
        return None
    try:
        text = str(json.loads(token))
    except ValueError:  # the line ends in it
        return None
    return text if text.isprintable() else None  # half a surrogate pair nobody can send
