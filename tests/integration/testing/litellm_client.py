"""A process that asks a model by litellm, as a worker does, and prints its answers as JSON.

Usage: ``python litellm_client.py MODEL OPTIONS COUNT``, OPTIONS a JSON object. It is a process of
its own because the library must see these settings before it is imported, and leaves threads.
"""

import asyncio
import json
import os
import sys

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}

import litellm

OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}
ONCE = {"num_retries": 0, "max_retries": 0, "_skip_mcp_handler": True}


async def answered(model, options):
    """Return one answer put together, or the error in its place."""
    messages = [{"role": "user", "content": "hi"}]
    try:
        stream = await litellm.acompletion(
            model=model, messages=messages, **OPTIONS, **ONCE, **options
        )
        chunks = [chunk async for chunk in stream]
    except litellm.RateLimitError as error:
        return {"error": type(error).__name__, "headers": dict(error.litellm_response_headers)}
    return litellm.stream_chunk_builder(chunks).model_dump()


async def main(model, options, count):
    """Print as many answers as asked for, as one JSON list."""
    answers = [await answered(model, json.loads(options)) for _ in range(int(count))]
    sys.stdout.write("\n" + json.dumps(answers, default=str))


asyncio.run(main(*sys.argv[1:]))
