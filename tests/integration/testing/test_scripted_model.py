"""``ScriptedModel`` over plain HTTP: what a client sees, and what the test can wait for."""

import http.client
import json
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest

from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import (
    Delay,
    Disconnect,
    Error,
    Hold,
    ScriptedModel,
    Sequence,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)

TIMEOUT_S = 20.0
STREAMS = 100
PATH = "/v1/chat/completions"


def connect(model):
    """Return a connection to the model's server, not opened yet."""
    return http.client.HTTPConnection(urllib.parse.urlsplit(model.url).netloc, timeout=TIMEOUT_S)


def ask(model, text="hi", *, stream=True):
    """Send one request and return the connection with its response, the body unread."""
    body = {"model": "openai/scripted", "stream": stream, "stream_options": {"include_usage": True}}
    body["messages"] = [{"role": "user", "content": text}]
    connection = connect(model)
    connection.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json"})
    return connection, connection.getresponse()


def answered(model, text="hi", *, stream=True):
    """Return status, headers and body of one answer."""
    connection, response = ask(model, text, stream=stream)
    try:
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def chunks(body):
    """Return the decoded events of a stream, ``[DONE]`` as it is."""
    events = [event.removeprefix("data: ") for event in body.split("\n\n") if event]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def said(body, key="content"):
    """Return the text that the deltas of a stream add up to."""
    deltas = [
        choice["delta"]
        for chunk in chunks(body)
        if chunk != "[DONE]"
        for choice in chunk.get("choices", [])
    ]
    return "".join(delta.get(key) or "" for delta in deltas)


def test_steps_are_answered_in_order():
    """The n-th request gets the n-th step, streamed or whole, and its body is kept."""
    with ScriptedModel(["one", "two"]) as model:
        first = said(answered(model, "a")[2])
        second = json.loads(answered(model, "b", stream=False)[2])
        asked = [request["messages"][0]["content"] for request in model.requests]
        model.assert_complete()

    assert first == "one"
    assert second["choices"][0]["message"] == {"role": "assistant", "content": "two"}
    assert asked == ["a", "b"]


def test_a_stream_ends_with_finish_usage_and_done():
    """The last three events are the finish reason, the usage and ``[DONE]``."""
    usage = TokenUsage(prompt_tokens=3, completion_tokens=4)
    with ScriptedModel([Text("abcdef", chunk_chars=2, usage=usage)]) as model:
        *text, finish, count, done = chunks(answered(model)[2])

    assert [chunk["choices"][0]["delta"]["content"] for chunk in text] == ["ab", "cd", "ef"]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert count["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert done == "[DONE]"


def test_pieces_are_sent_in_order():
    """One answer may think, speak and call several tools."""
    calls = ToolCalls(ToolUse("read", {"a": 1}), ToolUse("write", "{"))
    with ScriptedModel([Sequence(Thinking("hm"), Delay(0.01), "so", calls)]) as model:
        body = answered(model)[2]
    deltas = [c["choices"][0]["delta"] for c in chunks(body)[:-2]]
    names = [
        call["function"]["name"]
        for delta in deltas
        for call in delta.get("tool_calls", [])
        if "id" in call
    ]

    assert said(body, "reasoning_content") == "hm"
    assert said(body) == "so"
    assert names == ["read", "write"]
    assert chunks(body)[-3]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_callable_sees_the_request():
    """A step may compute its answer from the decoded request."""
    with ScriptedModel([lambda request: request["messages"][0]["content"].upper()]) as model:
        body = answered(model, "abc")[2]

    assert said(body) == "ABC"


def test_the_default_answers_when_the_steps_are_used_up():
    """``default`` answers any number of further requests, which are no misses."""
    with ScriptedModel(["one"], default="more") as model:
        found = [said(answered(model)[2]) for _ in range(3)]
        model.assert_complete()

    assert found == ["one", "more", "more"]


def test_a_request_too_many_is_named():
    """A request without a step gets a 410 that names it, and the script is not complete."""
    with ScriptedModel(["one"]) as model:
        answered(model)
        status, _, body = answered(model, "and now?")
        with pytest.raises(AssertionError, match="request 2 found no step"):
            model.assert_complete()

    assert status == 410
    assert "request 2" in json.loads(body)["error"]["message"]
    assert "'and now?'" in json.loads(body)["error"]["message"]


def test_steps_left_over_are_listed():
    """``assert_complete`` shows the steps that nobody asked for."""
    with ScriptedModel(["one", "two"]) as model:
        answered(model)
        with pytest.raises(AssertionError, match=r"1 of 2 steps were not taken:\s+.*two"):
            model.assert_complete()


def broken_step(request):
    """Fail as a step with a mistake in it does."""
    raise KeyError("oops")


def test_a_failing_callable_is_a_problem():
    """A step that raises is reported to the client and to the test, and the next one is served."""
    with ScriptedModel([broken_step, "fine"]) as model:
        status = answered(model)[0]
        body = answered(model)[2]
        with pytest.raises(AssertionError, match=r"request 1 raised KeyError: 'oops'"):
            model.assert_complete()

    assert status == 410
    assert said(body) == "fine"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_errors_have_the_shape_of_the_api(stream):
    """Status, message, code and Retry-After arrive as a provider sends them."""
    step = Error(429, "slow down", retry_after=1.5, code="rate_limited")
    with ScriptedModel([step]) as model:
        status, headers, body = answered(model, stream=stream)

    assert status == 429
    assert headers["Retry-After"] == "1.5"
    assert json.loads(body)["error"] == {
        "message": "slow down",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limited",
    }


def test_an_error_in_mid_stream_is_an_event():
    """Once the stream began, the status is out; the error is its last event."""
    with ScriptedModel([("so far", Error(500, "broke"))]) as model:
        status, _, body = answered(model)

    assert status == 200
    assert chunks(body)[-1]["error"]["message"] == "broke"


def test_a_disconnect_tears_the_stream():
    """What came before arrives, then the connection is closed without the end of the body."""
    with ScriptedModel([("so far", Disconnect(after_chars=4))]) as model:
        connection, response = ask(model)
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        connection.close()

    assert said(caught.value.partial.decode()) == "so farand "


def test_a_disconnect_alone_gives_no_answer():
    """As the only piece it closes before the head of the response."""
    with ScriptedModel([Disconnect()]) as model:
        connection = connect(model)
        connection.request("POST", PATH, "{}")
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
        connection.close()


def test_a_whole_answer_can_be_torn_too():
    """Without streaming, ``after_chars`` counts in the JSON body."""
    with ScriptedModel([("text", Disconnect(after_chars=6))]) as model:
        connection, response = ask(model, stream=False)
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        connection.close()

    assert caught.value.partial == b'{"id":'


def test_a_truncated_stream_has_no_finish():
    """The body ends well-formed, but nothing says that the answer is complete."""
    with ScriptedModel([Truncate(after_chars=3)]) as model:
        found = chunks(answered(model)[2])

    assert "[DONE]" not in found
    assert {chunk["choices"][0]["finish_reason"] for chunk in found} == {None}


def test_a_stall_lasts_until_the_client_leaves():
    """A stalled stream sends nothing more, and the model notices who gives up on it."""
    with ScriptedModel([("so far", Stall())]) as model:
        connection, response = ask(model)
        first = response.readline()
        response.close()
        connection.close()
        model.wait_abandoned()
        model.assert_complete()

    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "so far"


def test_a_held_stream_goes_on_when_released():
    """The client has what stands before the Hold, and the rest only after ``release``."""
    with ScriptedModel([("before", Hold(), "after")]) as model:
        connection, response = ask(model)
        model.wait_held(TIMEOUT_S)
        before = response.readline()
        model.release()
        after = response.read().decode()
        connection.close()
        model.assert_complete()

    assert json.loads(before.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "before"
    assert said(after.strip()) == "after"


def test_a_client_that_dies_while_held_frees_the_hold():
    """A held stream whose client is gone is held no more, and the next request is served."""
    with ScriptedModel([("before", Hold()), "next"]) as model:
        connection, response = ask(model)
        model.wait_held(TIMEOUT_S)
        response.close()
        connection.close()
        model.wait_abandoned()
        body = answered(model)[2]
        with pytest.raises(TimeoutError, match="0 held"):
            model.wait_held(timeout=0)

    assert said(body) == "next"


def test_releases_are_kept():
    """A release that finds nobody held lets the next stream pass."""
    with ScriptedModel([("a", Hold(), "b")]) as model:
        model.release()
        body = answered(model)[2]

    assert said(body) == "ab"


def test_a_hold_that_is_forgotten_is_a_problem(monkeypatch):
    """A stream that nobody releases is torn after the bound and spoils the script."""
    monkeypatch.setattr("cmdc_runtime.testing.scripted.HOLD_S_MAX", 0.01)
    with ScriptedModel([("a", Hold(), "b")]) as model:
        connection, response = ask(model)
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        connection.close()
        with pytest.raises(AssertionError, match="not released"):
            model.assert_complete()


def test_a_stall_is_bounded(monkeypatch):
    """A client that waits for ever is disconnected in the end."""
    monkeypatch.setattr("cmdc_runtime.testing.scripted.STALL_S_MAX", 0.01)
    with ScriptedModel([Stall(after_chars=3)]) as model:
        connection, response = ask(model)
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        connection.close()


def test_requests_can_be_waited_for():
    """``wait_request`` returns the n-th request, or says how many there were."""
    with ScriptedModel([("a", Hold()), "b"]) as model, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answered, model, "first")
        first = model.wait_request(1, TIMEOUT_S)
        with pytest.raises(TimeoutError, match="1 requests"):
            model.wait_request(2, timeout=0)
        model.release()
        asked.result(TIMEOUT_S)

    assert first["messages"] == [{"role": "user", "content": "first"}]


def test_requests_are_kept_up_to_a_bound(monkeypatch):
    """Old requests are forgotten and still counted."""
    monkeypatch.setattr("cmdc_runtime.testing.scripted.REQUESTS_KEPT_MAX", 2)
    with ScriptedModel([], default="x") as model:
        for number in range(4):
            answered(model, str(number))
        kept = [request["messages"][0]["content"] for request in model.requests]
        last = model.wait_request(4)["messages"][0]["content"]
        with pytest.raises(LookupError, match="request 1"):
            model.wait_request(1)

    assert kept == ["2", "3"]
    assert last == "3"


def test_many_streams_run_at_once():
    """A hundred clients are served at the same time, each its own whole answer."""
    step = Sequence("begin ", Hold(), Text("x" * 400, chunk_chars=4))
    with ScriptedModel([], default=step) as model, ThreadPoolExecutor(STREAMS) as pool:
        answers = [pool.submit(answered, model) for _ in range(STREAMS)]
        model.wait_held(TIMEOUT_S, count=STREAMS)
        model.release(STREAMS)
        found = {said(answer.result(TIMEOUT_S)[2]) for answer in answers}

    assert found == {"begin " + "x" * 400}
