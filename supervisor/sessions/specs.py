"""A session's definition as the journal keeps it: the request that started it."""

from cmdc_runtime.requests import StartSession
from cmdc_runtime.wire.codec import decode_as, encode


def spec_bytes(spec: StartSession) -> bytes:
    """Return a session's definition as the journal keeps it."""
    return encode(spec)


def spec_of(data: bytes) -> StartSession:
    """Return the definition that ``spec_bytes`` made.

    Raises:
        ProtocolError: it is damaged, or of another program.
    """
    spec: StartSession = decode_as(StartSession, data)
    return spec
