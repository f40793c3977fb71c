"""An application's object on its way to the process that runs it: what travels, not how.

``packing`` makes packed code, ``workers.loader`` opens it; the daemon and the client carry it.
"""

import hashlib
from typing import Final, Literal

import msgspec

from cmdc_runtime.checked_struct import Count

_DIGEST_BYTES: Final = 16


class Packed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool or plugin on its way; only a worker opens it."""

    kind: Literal["ref", "value"]
    label: str
    """What error messages call it: its name where that is known."""
    ref: str | None = None
    """A short name or ``module:qualname``, if ``kind`` is "ref"."""
    data: bytes | None = None
    """A pickle if ``kind`` is "value", else options of what ``ref`` names as msgpack, if any."""
    python: tuple[Count, Count] | None = None
    """Who packed a value: byte code is good for one minor version of Python."""
    code: dict[str, str] = {}
    """Digests of the modules that ``ref`` brought where it was opened first, by their names."""

    @property
    def is_built_in(self) -> bool:
        """Whether it is named by a short name, which no code of an application has."""
        return self.ref is not None and ":" not in self.ref


def digest_of(packed: Packed) -> str:
    """Return what names packed code by all that it holds, whatever code is found under its name."""
    body = msgspec.msgpack.encode(msgspec.structs.replace(packed, code={}))
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()
