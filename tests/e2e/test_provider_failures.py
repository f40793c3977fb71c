"""Every way in which a provider fails, over real HTTP: what is retried and what is reported."""

import http.server
import socket
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import (
    Delay,
    Disconnect,
    Error,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)

TURN_S = 20.0
QUICK = {"retry_base_delay": 0.01, "retry_max_delay": 0.05}
ANSWER = "All is well again."
OVERFLOW = "This model's maximum context length is 8192 tokens. Please reduce the length."


def run_through(session, cycle_of):
    """Send one prompt and return the events of its cycle."""
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)
    stream.close()
    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    return [envelope.event for envelope in found]


def kinds(events):
    return [event.kind for event in events]


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_refused_key_fails_at_once(agent, scripted, cycle_of):
    """A 401 is final: one request, one error that says so, and a session that is idle."""
    model = scripted(Error(401, "Incorrect API key provided."), ANSWER)
    session = agent(model, **QUICK)
    events = run_through(session, cycle_of)

    assert len(model.requests) == 1
    assert kinds(events)[-2:] == ["stream_error", "agent_error"]
    assert not events[-1].retryable
    with pytest.raises(cmdc.AgentFailed, match="Incorrect API key"):
        session.collect_reply()
    assert session.status().state == "idle"
    assert session.run("Again.", timeout=TURN_S).text == ANSWER


def test_rate_limit_waits_as_long_as_it_is_asked_to(agent, scripted, cycle_of):
    """``Retry-After`` is believed in place of our own delay."""
    model = scripted(Error(429, "Slow down.", retry_after=0.2), ANSWER)
    session = agent(model, retry_base_delay=0.01, retry_max_delay=5.0)
    events = run_through(session, cycle_of)
    (retry,) = of(cmdc.events.Retry, events)

    assert (retry.attempt, retry.delay_ms) == (1, 200)
    assert "stream_reset" not in kinds(events)  # nothing had been shown
    assert session.collect_reply() == ANSWER


def test_server_errors_are_retried_with_growing_delays(agent, scripted, cycle_of):
    """Each attempt is reported with its delay, which doubles up to its bound."""
    model = scripted(Error(500, "one"), Error(503, "two"), Error(502, "three"), ANSWER)
    session = agent(model, **QUICK)
    events = run_through(session, cycle_of)
    retries = of(cmdc.events.Retry, events)

    assert [(retry.attempt, retry.delay_ms) for retry in retries] == [(1, 10), (2, 20), (3, 40)]
    assert session.collect_reply() == ANSWER
    model.assert_complete()


def test_retries_end(agent, scripted, cycle_of):
    """After the last attempt the failure is reported as one that may pass."""
    model = scripted(default=Error(500, "for ever"))
    session = agent(model, max_retries=2, **QUICK)
    events = run_through(session, cycle_of)

    assert len(model.requests) == 3
    assert (events[-1].kind, events[-1].retryable) == ("agent_error", True)
    with pytest.raises(cmdc.AgentFailed, match="for ever"):
        session.collect_reply()


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(Disconnect(after_chars=40), id="disconnected"),
        pytest.param(Truncate(after_chars=40), id="truncated"),
        pytest.param((Text("and so on, "), Error(500, "in mid-stream")), id="error-event"),
    ],
)
def test_torn_stream_is_asked_for_again(agent, scripted, cycle_of, cut):
    """What was shown of a torn answer is taken back, and the next one is whole."""
    model = scripted(cut, ANSWER)
    session = agent(model, **QUICK)
    events = run_through(session, cycle_of)
    seen = kinds(events)

    assert seen.index("message_delta") < seen.index("stream_error") < seen.index("stream_reset")
    assert seen.index("stream_reset") < seen.index("retry")
    after = events[seen.index("stream_reset") :]
    assert "".join(event.delta for event in of(cmdc.events.MessageDelta, after)) == ANSWER
    assert [message.content for message in session.messages()[1:]] == ["Go.", ANSWER]


def test_torn_tool_call_is_not_run(agent, scripted, cycle_of):
    """A call whose arguments did not come to their end is asked for again, not guessed at."""
    ran = (ToolCalls(ToolUse("count", {"n": 1})), ANSWER)
    torn = (ToolCalls(ToolUse("count", '{"n": 1'), finish="length"), Disconnect())

    @cmdc.tool(effects="write")
    def count(n: int) -> str:
        """Count."""
        return str(n + 1)

    model = scripted(torn, *ran)
    session = agent(model, tools=[count], **QUICK)
    events = run_through(session, cycle_of)

    assert [event.args for event in of(cmdc.events.ToolExecutionStart, events)] == [{"n": 1}]
    assert session.collect_reply() == ANSWER


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param(ToolUse("nothing", {}), "no tool named 'nothing'", id="unknown-tool"),
        pytest.param(ToolUse("count", '{"n": '), "no JSON object", id="malformed"),
        pytest.param(ToolUse("count", {"n": "one"}), "Invalid arguments", id="wrong-type"),
    ],
)
def test_bad_call_is_a_result_that_the_model_reads(agent, scripted, cycle_of, use, words):
    """A mistake of the model costs a turn and nothing else."""

    @cmdc.tool(effects="write")
    def count(n: int) -> str:
        """Count."""
        return str(n + 1)

    model = scripted(ToolCalls(use), ANSWER)
    session = agent(model, tools=[count], **QUICK)
    events = run_through(session, cycle_of)
    (ended,) = of(cmdc.events.ToolExecutionEnd, events)

    assert not ended.ok
    assert words in ended.text
    assert session.collect_reply() == ANSWER


def test_overflow_ends_the_cycle(agent, scripted, cycle_of):
    """A conversation that does not fit is no failure of the provider and is not retried."""
    model = scripted(Error(400, OVERFLOW, code="context_length_exceeded"), ANSWER)
    session = agent(model, **QUICK)
    events = run_through(session, cycle_of)

    assert kinds(events)[-3:] == ["stream_error", "context_overflow", "agent_abort"]
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.collect_reply()
    assert caught.value.reason == "context_overflow"
    assert session.run("Again.", timeout=TURN_S).text == ANSWER


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param(Stall(), id="before-headers"),
        pytest.param(Stall(after_chars=20), id="in-mid-stream"),
    ],
)
def test_silence_is_reported_and_ends(agent, scripted, cycle_of, silence):
    """Silence is reported after ``stall_after`` and is a failure after ``stall_timeout``."""
    model = scripted(silence, silence, ANSWER)
    session = agent(model, stall_after=0.1, stall_timeout=0.3, max_retries=1, **QUICK)
    events = run_through(session, cycle_of)

    assert kinds(events).count("stream_stalled") >= 2
    assert kinds(events).count("retry") == 1
    assert events[-1] == cmdc.events.AgentAbort(
        reason="provider_timeout", command_id=events[0].command_id
    )
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.collect_reply()
    assert caught.value.reason == "provider_timeout"
    model.wait_abandoned(2)
    assert session.run("Again.", timeout=TURN_S).text == ANSWER


def test_slow_answer_is_no_silence(agent, scripted, cycle_of):
    """As long as something comes, thinking included, nobody is cut off."""
    slow = (Thinking("hm " * 8, chunk_chars=4, delay=0.06), Delay(0.1), ANSWER)
    session = agent(scripted(slow), stall_after=0.3, stall_timeout=0.4, **QUICK)
    events = run_through(session, cycle_of)

    assert "stream_stalled" not in kinds(events)
    assert events[-1].kind == "agent_end"


def test_address_without_a_server_fails_at_once(agent, cycle_of):
    """Nobody was ever there: no retry, and the address stands in the error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
        session = agent(
            "openai/scripted", provider_opts={"api_base": f"{base}/v1", "api_key": "none"}
        )
        events = run_through(session, cycle_of)

    assert "retry" not in kinds(events)
    assert (events[-1].kind, events[-1].retryable) == ("agent_error", False)
    with pytest.raises(cmdc.AgentFailed, match=f"no server at {base}: connection refused"):
        session.collect_reply()


def test_server_that_has_gone_is_waited_for(agent, scripted, cycle_of):
    """It has answered before, so it may be starting again."""
    model = scripted("here")
    session = agent(model, max_retries=1, **QUICK)
    session.run("Are you there?", timeout=TURN_S)
    model.close()
    stream = session.subscribe()
    session.prompt("And now?")
    events = [envelope.event for envelope in cycle_of(stream)]
    stream.close()

    assert kinds(events).count("retry") == 1
    assert (events[-1].kind, events[-1].retryable) == ("agent_error", True)
    assert events[-1].reason.startswith("no server at http://127.0.0.1:")


def test_an_account_without_money_fails_at_once(agent, scripted, cycle_of):
    """It has the status of a limit that is soon over, and is over when a person has paid."""
    spent = Error(429, "You exceeded your quota: see your plan.", code="insufficient_quota")
    session = agent(scripted(spent), **QUICK)
    events = run_through(session, cycle_of)

    assert "retry" not in kinds(events)
    assert (events[-1].kind, events[-1].retryable) == ("agent_error", False)


class Page(http.server.BaseHTTPRequestHandler):
    """Answers as a site does whose API lies elsewhere."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_args):
        pass


@pytest.mark.parametrize("way", [{}, {"via": "litellm"}], ids=["own", "litellm"])
def test_a_web_page_is_no_answer_and_its_address_is_named(agent, cycle_of, way):
    """The address of the site in the place of its API: no retry finds a model there."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        options = {"api_base": base, "api_key": "none", **way}
        events = run_through(agent("openai/scripted", provider_opts=options, **QUICK), cycle_of)
        server.shutdown()
        thread.join()

    assert "retry" not in kinds(events)
    assert events[-1].reason.startswith(f"what answers at {base}/chat/completions is a web page")


def test_a_server_without_tls_is_reported_as_one(agent, cycle_of):
    """The scheme of an address is easily mistyped."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        base = f"https://127.0.0.1:{server.server_port}"
        options = {"api_base": base, "api_key": "none"}
        events = run_through(agent("openai/scripted", provider_opts=options, **QUICK), cycle_of)
        server.shutdown()
        thread.join()

    assert "retry" not in kinds(events)
    assert events[-1].reason.startswith(f"no server at {base}: it does not speak TLS; is its addr")


UNUSABLE = {
    "no server of its own": (
        "hosted_vllm:m",
        {},
        "there is no address for hosted_vllm:m: give api_base in provider_opts, or set HOSTED_VLLM",
    ),
    "no key": ("openai:gpt-4o", {}, "set OPENAI_API_KEY"),
    "no provider": ("nobody:model", {}, "no provider is known by the name in model 'nobody:model'"),
    "no address": ("openai:m", {"api_base": "localhost:1", "api_key": "none"}, "is no URL"),
    "no scheme": (
        "openai:m",
        {"api_base": "htp://127.0.0.1:1/v1", "api_key": "none"},
        "'htp://127.0.0.1:1/v1': its scheme is neither http nor https",
    ),
    "no port": (
        "anthropic:m",
        {"base_url": "http://127.0.0.1:99999", "api_key": "none"},
        "'http://127.0.0.1:99999': its host or port cannot be read",
    ),
    "a user and no server": (
        "openai:m",
        {"api_base": "http://me:hunter2@127.0.0.1:1/v1", "api_key": "none"},
        r"^(?!.*hunter2).*no server at http://127.0.0.1:1: connection refused",
    ),
}


@pytest.mark.parametrize(("model", "options", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_work_fails_at_once_and_by_name(agent, cycle_of, model, options, message):
    """No retry helps; the error says which variable, model or address is to be changed."""
    session = agent(model, provider_opts=options)
    events = run_through(session, cycle_of)

    assert "retry" not in kinds(events)
    assert (events[-1].kind, events[-1].retryable) == ("agent_error", False)
    with pytest.raises(cmdc.AgentFailed, match=message):
        session.collect_reply()


def test_turns_are_bounded(agent, scripted, cycle_of):
    """A model that never stops asking for tools is ended by ``max_turns``."""

    @cmdc.tool(effects="read")
    def again() -> str:
        """Ask again."""
        return "again"

    model = scripted(default=ToolCalls(ToolUse("again", {})))
    session = agent(model, tools=[again], max_turns=3)
    events = run_through(session, cycle_of)

    assert len(model.requests) == 3
    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "max_turns_exceeded")
