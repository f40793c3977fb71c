"""Log lines: one object a line for machines, one line for people, no secret in either."""

import io

import msgspec
import pytest
import structlog

from supervisor.logs import REDACTED, configure_logs

CANARY = "sk-canary-0123456789"


@pytest.fixture
def sink():
    """Yield the stream that log lines go to; structlog is as before afterwards."""
    yield io.BytesIO()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def fail(**_kwargs):
    """Raise with a secret in the text, as clients of providers do."""
    raise ValueError(f"refused: api_key={CANARY}, headers={{'Authorization': 'Bearer {CANARY}'}}")


def test_json_has_one_object_a_line(sink):
    """Event, level, time, bound context and fields are one JSON object."""
    configure_logs("info", "json", sink)
    structlog.contextvars.bind_contextvars(session_id="s-1")
    structlog.get_logger().info("worker.started", pid=7, path=io)
    line = msgspec.json.decode(sink.getvalue())

    assert sink.getvalue().count(b"\n") == 1
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "worker.started",
        "level": "info",
        "session_id": "s-1",
        "pid": 7,
        "path": repr(io),
    }


def test_console_is_plain_text_when_nobody_looks(sink):
    """A stream that is no terminal gets no colours."""
    configure_logs("info", "console", sink)
    structlog.get_logger().info("worker.started", name="ä", pid=7)

    assert "worker.started" in sink.getvalue().decode()
    assert "name=ä" in sink.getvalue().decode()
    assert b"\x1b" not in sink.getvalue()


def test_lines_below_the_level_are_not_written(sink):
    """The level is the least severe one that is kept."""
    configure_logs("warning", "json", sink)
    structlog.get_logger().info("worker.started")

    assert sink.getvalue() == b""


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "name", ["api_key", "OPENAI_API_KEY", "x-api-key", "token", "authToken", "Authorization"]
)
def test_secrets_are_taken_out_by_name(sink, log_format, name):
    """Whatever is named like a secret is not written, at any depth."""
    configure_logs("info", log_format, sink)
    nested = [{"headers": {name: CANARY}}]
    structlog.get_logger().info("model.called", **{name: CANARY}, request=nested)

    assert CANARY not in sink.getvalue().decode()
    assert REDACTED in sink.getvalue().decode()


def test_counts_of_tokens_are_no_secrets(sink):
    """What is counted may be read."""
    configure_logs("info", "json", sink)
    structlog.get_logger().info("model.called", total_tokens=5, token_usage={"input": 3})
    line = msgspec.json.decode(sink.getvalue())

    assert (line["total_tokens"], line["token_usage"]) == (5, {"input": 3})


def test_what_is_nested_too_deep_is_left_out(sink):
    """The search has a bound, and what it cannot see is not written."""
    configure_logs("info", "json", sink)
    structlog.get_logger().info("model.called", a={"b": {"c": {"d": {"e": {"f": CANARY}}}}})

    assert CANARY not in sink.getvalue().decode()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_show_neither_locals_nor_secrets(sink, log_format):
    """A traceback has the lines of the code, and secrets in its message are taken out."""
    configure_logs("info", log_format, sink)
    try:
        fail(unlucky=CANARY)
    except ValueError:
        structlog.get_logger().exception("model.failed")
    text = sink.getvalue().decode()

    assert "ValueError: refused" in text
    assert CANARY not in text
