"""Streams: pieces of text, events, and both in an event loop."""

from typing import assert_type

import cmdc_runtime as cmdc

session = cmdc.create_agent(model="openai:gpt-4o-mini")
for piece in session.stream("Hello", timeout=5):
    assert_type(piece, str)
for event in session.stream_events("Hello"):
    assert_type(event.kind, str)
with session.subscribe(since=session.last_index()) as stream:
    assert_type(stream.get(1.0), cmdc.Envelope)
session.stream("Hello", since=1)  # wrong
session.subscribe(since="all")  # wrong


async def main() -> None:
    """Do the same in an event loop."""
    found = await cmdc.aio.create_agent(model="openai:gpt-4o-mini")
    async for piece in found.stream("Hello"):
        assert_type(piece, str)
    for _ in found.stream("Hello"):  # wrong
        pass
    async with await found.subscribe() as stream:
        async for envelope in stream:
            assert_type(envelope.at_ms, int)
