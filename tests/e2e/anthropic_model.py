"""A scripted model on Anthropic's wire, over HTTP, for sessions that ask without litellm."""

import json
from contextlib import contextmanager

from cmdc_runtime.testing.server import HOST, ServerThread

USAGE = {"input_tokens": 7, "output_tokens": 5}


class AnthropicModel:
    """Says one step after the other: a text, or a call of a tool as its name and arguments."""

    def __init__(self, *steps):
        """Begin with the first step; ``requests`` are the bodies that came."""
        self._steps = list(steps)
        self.requests = []
        self.address = ""

    @contextmanager
    def serve(self):
        """Answer on the loopback for as long as the block runs."""
        server = ServerThread(self._answer, lambda: None)
        self.address = f"http://{HOST}:{server.start()}"
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, request, reply):
        self.requests.append(json.loads(request.body))
        blocks = self._steps.pop(0)
        blocks = [blocks] if isinstance(blocks, str | tuple) else blocks
        await reply.event(event("message_start", message={"usage": USAGE}))
        for index, block in enumerate(blocks):
            for written in block_events(block, index, f"toolu_{len(self.requests)}_{index}"):
                await reply.event(written)
        calls = any(isinstance(one, tuple) for one in blocks)
        delta = {"stop_reason": "tool_use" if calls else "end_turn"}
        await reply.event(event("message_delta", delta=delta, usage=USAGE))
        await reply.end(event("message_stop"))


def block_events(block, index, call_id):
    """Return the events of a text or of a call, its arguments torn in two."""
    if isinstance(block, str):
        opened, key, written = {"type": "text", "text": ""}, "text", block
    else:
        name, arguments = block
        opened = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        key, written = "partial_json", json.dumps(arguments)
    half = len(written) // 2
    return [
        event("content_block_start", index=index, content_block=opened),
        event("content_block_delta", index=index, delta={key: written[:half]}),
        event("content_block_delta", index=index, delta={key: written[half:]}),
        event("content_block_stop", index=index),
    ]


def event(kind, **members):
    """Return one server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()
