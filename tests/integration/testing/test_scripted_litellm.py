"""``ScriptedModel`` through the real provider library, as a session reaches it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Error, ScriptedModel, Sequence, Text, Thinking, ToolCalls, ToolUse

TIMEOUT_S = 60.0
CLIENT = Path(__file__).with_name("litellm_client.py")
USAGE = TokenUsage(prompt_tokens=11, completion_tokens=5)
CALLS = ToolCalls(ToolUse("read", {"path": "a.txt"}), ToolUse("list", {}), usage=USAGE)


def through_litellm(model, count):
    """Return what the library made of the next answers of the model."""
    name, options = model.model_source()
    command = [sys.executable, CLIENT, name, json.dumps(options), str(count)]
    client = subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    return json.loads(client.stdout.splitlines()[-1])


@pytest.mark.process
@pytest.mark.slow
def test_answers_survive_the_provider_path():
    """Thinking, text, tool calls, usage and errors arrive as scripted, each asked for once."""
    steps = [Sequence(Thinking("hm"), Text("so"), CALLS), Error(429, "slow", retry_after=2)]
    with ScriptedModel(steps) as model:
        answer, error = through_litellm(model, len(steps))
        model.assert_complete()
        requests_count = len(model.requests)
    message = answer["choices"][0]["message"]
    called = [(call["id"], call["function"]) for call in message["tool_calls"]]

    assert (message["reasoning_content"], message["content"]) == ("hm", "so")
    assert called == [
        ("call_1_0", {"name": "read", "arguments": '{"path":"a.txt"}'}),
        ("call_1_1", {"name": "list", "arguments": "{}"}),
    ]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"]["prompt_tokens"] == 11
    assert answer["usage"]["completion_tokens"] == 5
    assert (error["error"], error["headers"]["retry-after"]) == ("RateLimitError", "2")
    assert requests_count == 2
