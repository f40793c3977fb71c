"""Log lines of a worker: a record fits its line whatever was logged, plain lines hold no locals."""

import msgspec
import pytest
import structlog

from cmdc_runtime.lines import LINE_BYTES_MAX, RECORD_MARK
from workers.logs import configure_logs, render_record


def rendered(**fields):
    line = render_record(None, "info", {"event": "a.b", "level": "info", **fields})
    assert line.startswith(RECORD_MARK)
    assert len(line) <= LINE_BYTES_MAX
    assert b"\n" not in line
    return msgspec.json.decode(line[1:])


def fail(_canary):
    raise ValueError("broken \udcff")


@pytest.fixture
def structlog_as_before():
    yield
    structlog.reset_defaults()


def test_a_record_is_one_line_of_json():
    """Newlines are in the JSON's strings, and what JSON does not know is written as its repr."""
    assert rendered(text="x\ny", what=msgspec) == {
        "event": "a.b",
        "level": "info",
        "text": "x\ny",
        "what": repr(msgspec),
    }


def test_a_long_record_is_shortened_where_it_is_long():
    """A traceback keeps both ends, the last lines above all; short fields stay as they are."""
    trace = "Traceback\n" + "  File x\n" * 5_000 + "ValueError: last"
    found = rendered(exception=trace, text="t" * 9_000, listed=["x" * 9_000], took_ms=3)

    assert found["exception"].startswith("Traceback\n  File x\n")
    assert found["exception"].endswith("  File x\nValueError: last")
    assert "\n  ...\n" in found["exception"]
    assert found["text"] == "t" * 1_000
    assert found["listed"] == ("['" + "x" * 998)
    assert found["took_ms"] == 3


def test_a_record_with_too_much_in_it_keeps_its_name():
    """Many long fields are left out together; a short traceback is not touched before."""
    many = {f"field_{number}": "x" * 900 for number in range(100)}

    assert rendered(**many, exception="short") == {"event": "a.b", "level": "info"}
    assert rendered(exception="short", text="t" * 9_000)["exception"] == "short"


def test_a_record_that_can_not_be_encoded_is_written_all_the_same():
    """Half a surrogate, a key that is none and a list in itself fail nobody."""
    ring = []
    ring.append(ring)

    assert rendered(text="\ud800") == {"event": "a.b", "level": "info", "text": "'\\ud800'"}
    assert rendered(ring=ring)["ring"] == "[[...]]"
    assert rendered(keys={(1, 2): 3})["keys"] == {"(1, 2)": 3}


@pytest.mark.parametrize("as_records", [True, False])
def test_lines_have_a_level_and_tracebacks_no_locals(as_records, capfd, structlog_as_before):
    """Where nobody reads records, people read lines; what is below the level is in neither."""
    configure_logs("warning", as_records=as_records)
    log = structlog.get_logger()
    log.info("not.kept")
    try:
        fail("in a " + "variable")
    except ValueError:
        log.exception("tool.failed", tool="shell")
    text = capfd.readouterr().err

    assert "tool.failed" in text
    assert "ValueError: broken" in text
    assert "not.kept" not in text
    assert "in a variable" not in text
    assert text.startswith("\x1e{") == as_records
    assert text.count("\n") == 1 or not as_records
