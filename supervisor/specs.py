"""A session's definition as the journal keeps it: the request that started it."""

from typing import Final

import msgspec

from cmdc_runtime.codec import encode
from cmdc_runtime.requests import StartSession

_KEPT: Final = msgspec.msgpack.Decoder(StartSession)


def spec_bytes(spec: StartSession) -> bytes:
    """Return a session's definition as the journal keeps it."""
    return encode(spec)


def spec_of(data: bytes) -> StartSession:
    """Return the definition that ``spec_bytes`` made."""
    return _KEPT.decode(data)
