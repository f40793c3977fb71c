"""Records in what a worker writes: taken where they are proper, harmless whatever they say."""

import json

import pytest

from supervisor.core.output import DEPTH_MAX, FIELDS_MAX, Record, read_record


def line(**fields):
    return b"\x1e" + json.dumps({"event": "tool.failed", "level": "warning", **fields}).encode()


def fields_of(**fields):
    record = read_record(line(**fields))
    assert record is not None
    return record.fields


def test_event_level_and_fields_are_kept():
    """A worker's record is a record of the log."""
    record = read_record(line(tool="shell", took_ms=3, ok=True, rate=0.5, none=None))

    assert record == Record(
        30, "tool.failed", {"tool": "shell", "took_ms": 3, "ok": True, "rate": 0.5, "none": None}
    )


@pytest.mark.parametrize(
    ("name", "level"),
    [("debug", 10), ("info", 20), ("warning", 30), ("error", 40), ("critical", 50)],
)
def test_a_level_has_the_number_that_logs_know_it_by(name, level):
    """Python's own."""
    assert read_record(line(level=name)).level == level


@pytest.mark.parametrize(
    "piece",
    [
        b"plain",
        b'{"event": "a.b", "level": "info"}',
        b"\x1e",
        b"\x1enull",
        b"\x1e[1]",
        b'\x1e{"event": "a.b"',
        b'\x1e{"event": "a.b"}',
        b'\x1e{"event": 1, "level": "info"}',
        b'\x1e{"event": "a.b", "level": "fatal"}',
        b'\x1e{"event": "a.b", "level": ["info"]}',
        b'\x1e{"event": "a.b", "level": "info", "x": "\xff"}',
        b'\x1e{"event": "a.b", "level": "info", "x": "\\ud800"}',
        b'\x1e{"event": "a.b", "level": "info", "x": 1e999}',
        b'\x1e{"event": "a.b", "level": "info", "x": ' + b"9" * 5_000 + b"}",
        b'\x1e{"event": "a.b", "level": "info", "x": ' + b"[" * 4_000,
    ],
)
def test_what_is_no_proper_record_is_text(piece):
    """Nothing that is written makes the reader fail."""
    assert read_record(piece) is None


def test_what_the_daemon_binds_or_acts_on_is_not_taken():
    """A line can't say whose it is, when it was, or have our log show our own stack."""
    bound = ("session_id", "incarnation", "pid", "stream", "worker_id", "timestamp")
    acted_on = ("exc_info", "stack", "stack_info", "logger", "_name", "two words", "", "x\n")
    given = dict.fromkeys(bound + acted_on, "forged")

    assert fields_of(**given, exception=["no", "text"], kept=1) == {"kept": 1}


def test_an_event_that_is_a_sentence_becomes_a_field():
    """Libraries log sentences; the log's own events are names."""
    record = read_record(line(event="Connected\nto \x1b[1mhost"))

    assert record == Record(30, "worker.logged", {"text": "Connected␊to ␛[1mhost"})


def test_text_can_not_leave_its_line_at_any_depth():
    """Newlines and escape sequences are visible, in keys too; a traceback stays indented."""
    found = fields_of(
        a="x\ny", b=[{"k\n": ["\x1b"]}], exception="Traceback:\n  File\nerror \x1b[1m"
    )

    assert found == {
        "a": "x␊y",
        "b": [{"k␊": ["␛"]}],
        "exception": "  Traceback:\n    File\n  error ␛[1m",
    }


def test_size_and_depth_have_bounds():
    """Fields beyond the bound, what lies too deep and giant numbers are left out."""
    deep = 1
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    many = fields_of(**{f"f{number}": number for number in range(FIELDS_MAX + 5)})
    text = json.dumps(fields_of(deep=deep, large=2**63 - 1, giant=10**400, below=-(2**63) + 1))

    objects = fields_of(deep={"a": {"b": {"c": {"d": {"e": 1}}}}})

    assert len(many) == FIELDS_MAX
    assert objects == {"deep": {"a": {"b": {"c": {"d": "…"}}}}}
    assert text == (
        '{"deep": [[[["\\u2026"]]]], "large": 9223372036854775807, "giant": "\\u2026",'
        ' "below": -9223372036854775807}'
    )
