"""Log lines: one object a line for machines, one line for people, no secret in either.

Whoever logs is never held up: the sinks here are pipes and files that take nothing.
"""

import io
import os
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
import structlog

from supervisor import logs
from supervisor.logs import (
    REDACTED,
    configure_logs,
    flush_logs,
    log_losses,
    redact_text,
    set_level,
)

CANARY = "sk-canary-0123456789"
WAIT_S = 10.0


class Written(io.BytesIO):
    """A stream in memory that is read when all was written."""

    def getvalue(self):
        assert flush_logs(WAIT_S)
        return super().getvalue()


@pytest.fixture
def sink(monkeypatch):
    """Yield the stream that log lines go to; structlog is as before afterwards."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield Written()
    flush_logs(WAIT_S)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def pipe(sink):  # it puts structlog back
    """Yield both ends of a pipe, which the test may close, with the log at its one end."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as reading, os.fdopen(writer, "wb", 0) as writing:
        configure_logs("info", "json", writing)
        yield reading, writing
        reading.close()  # whoever still writes hears of it
        flush_logs(WAIT_S)


def until(is_true):
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # tidy: polls another thread


def log_many(count, text="x" * 1_000):
    logger = structlog.get_logger()
    for number in range(count):
        logger.info("line.logged", number=number, text=text)


def decoded(text):
    return [msgspec.json.decode(line) for line in text.splitlines()]


def numbers(lines):
    return [line["number"] for line in lines if line["event"] == "line.logged"]


def read_all(reading, writing):
    """Read what is in the pipe and what is still queued."""
    parts = []
    thread = threading.Thread(target=lambda: parts.extend(iter(lambda: reading.read(1 << 16), b"")))
    thread.start()
    assert flush_logs(WAIT_S)
    assert flush_logs(WAIT_S), "what was logged of losses meanwhile"
    writing.close()
    thread.join()
    return decoded(b"".join(parts))


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


def test_secrets_in_text_are_found_in_bounded_time():
    """A line that was made to be slow to search takes no longer than any other."""
    text = "a-" * 100_000 + " my-Api-Key = '" + CANARY + "', tokens: 5"
    began = time.monotonic()
    clean = redact_text(text)

    assert clean.endswith(f" my-Api-Key = {REDACTED}, tokens: 5")
    assert time.monotonic() - began < 5.0


def test_what_can_not_be_encoded_is_written_all_the_same(sink):
    """A file's name may be no text, and a key no string: logging it fails nobody."""
    configure_logs("info", "json", sink)
    structlog.get_logger().info("file.found", path="\udcff", other={(1, 2): 3})
    (line,) = decoded(sink.getvalue())

    assert (line["event"], line["level"]) == ("file.found", "info")
    assert (line["path"], line["other"]) == ("'\\udcff'", "{(1, 2): 3}")


def test_the_level_can_be_set_while_the_process_runs(sink):
    """Loggers that were used before follow."""
    configure_logs("warning", "json", sink)
    logger = structlog.get_logger().bind(bound=1)
    logger.info("line.lost")
    set_level("debug")
    logger.debug("line.kept")
    set_level("error")
    logger.warning("line.lost")

    assert [line["event"] for line in decoded(sink.getvalue())] == ["line.kept"]


def test_another_stream_gets_what_is_logged_from_then_on(sink):
    """What was queued before goes where it was meant to."""
    other = Written()
    configure_logs("info", "json", sink)
    log_many(2)
    configure_logs("info", "json", other)
    log_many(1)

    assert numbers(decoded(other.getvalue())) == [0]
    assert numbers(decoded(sink.getvalue())) == [0, 1]


def test_a_reader_that_does_not_read_holds_up_nobody(pipe, monkeypatch):
    """Lines are dropped and counted; when there is room again one record says how many."""
    monkeypatch.setattr(logs, "LINES_QUEUED_MAX", 100)
    log_many(1_000)
    was_flushed = flush_logs(0.01)
    lost = log_losses()
    lines = read_all(*pipe)
    losses = [line for line in lines if line["event"] == "log.dropped"]

    assert not was_flushed
    assert 700 < lost.dropped_lines < 900
    assert lost.dropped_bytes > lost.dropped_lines * 1_000
    assert sum(line["lines"] for line in losses) == lost.dropped_lines
    assert sum(line["bytes"] for line in losses) == lost.dropped_bytes
    assert {line["level"] for line in losses} == {"warning"}
    assert len(numbers(lines)) == 1_000 - lost.dropped_lines
    assert numbers(lines) == sorted(numbers(lines))


def test_the_queue_has_a_bound_of_bytes(pipe, monkeypatch):
    """A few large lines are as many as the bound has room for."""
    monkeypatch.setattr(logs, "BYTES_QUEUED_MAX", 250_000)
    log_many(10, text="x" * 100_000)
    lost = log_losses()
    lines = read_all(*pipe)

    assert len(numbers(lines)) == 10 - lost.dropped_lines
    assert 10 - lost.dropped_lines in (2, 3), "one may be in the writer's hand"


@pytest.mark.parametrize("is_blocking", [True, False])
def test_nothing_is_lost_where_the_reader_comes_late(pipe, is_blocking):
    """A full pipe is waited for on the thread, even if somebody made it non-blocking."""
    _, writing = pipe
    os.set_blocking(writing.fileno(), is_blocking)
    log_many(300)

    assert numbers(read_all(*pipe)) == list(range(300))
    assert log_losses() == logs.Losses()


def test_a_closed_reader_is_counted_and_never_raised(pipe, monkeypatch):
    """At the end what nobody reads is dropped, in no time."""
    monkeypatch.setattr(logs, "RETRY_S", 0.01)
    reading, writing = pipe
    reading.close()
    log_many(3)
    until(lambda: log_losses().write_errors > 1)
    writing.close()
    until(lambda: log_losses().write_errors > 2)

    assert log_losses().dropped_lines == 0
    assert flush_logs(WAIT_S)
    assert log_losses().dropped_lines == 3


def test_a_full_disk_loses_nothing_that_the_queue_has_room_for(sink, monkeypatch, tmp_path):
    """Writing goes on when it is possible again."""
    monkeypatch.setattr(logs, "RETRY_S", 0.01)
    with Path("/dev/full").open("wb", 0) as full, (tmp_path / "log").open("wb") as file:
        configure_logs("info", "json", full)
        log_many(5)
        until(lambda: log_losses().write_errors > 1)
        os.dup2(file.fileno(), full.fileno())
        log_many(1)

        assert flush_logs(WAIT_S)
    assert numbers(decoded((tmp_path / "log").read_bytes())) == [0, 1, 2, 3, 4, 0]
    assert log_losses().dropped_lines == 0


def test_a_line_waits_where_no_thread_is_to_be_had(sink, monkeypatch):
    """The next one tries again; whoever logs hears nothing of it."""

    def refuse(_self):
        raise RuntimeError("can't start new thread")

    configure_logs("info", "json", sink)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        log_many(2)
        assert not flush_logs(0.0)
    log_many(1)

    assert numbers(decoded(sink.getvalue())) == [0, 1, 0]


def test_a_fault_of_the_thread_costs_its_lines_only(sink, monkeypatch):
    """The next line starts another thread."""

    class Faulty(Written):
        def write(self, text):
            raise ZeroDivisionError

    faults = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    stream = Faulty()
    configure_logs("info", "json", stream)
    log_many(1)
    until(lambda: faults)
    monkeypatch.setattr(Faulty, "write", io.BytesIO.write)
    log_many(2)

    assert numbers(decoded(stream.getvalue())) == [0, 1]
