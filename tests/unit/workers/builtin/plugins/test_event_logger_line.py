"""One line of the event log: JSON of bounded size."""

import json

import msgspec
import pytest

from cmdc_runtime.messages import Message
from cmdc_runtime.plugins.observers import LINE_BYTES_MAX
from workers.builtin.plugins.event_logger import line_of

RECORD = {"event": "plugin_event", "data": None, "turn": 1}


def deep(levels):
    """Return a dict in a dict, so many times."""
    found = {"text": "x" * 10**5}
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    "payload",
    [
        "x" * 10**6,
        {"text": "é" * 10**5, "number": 7},
        ["word"] * 10**5,
        ("word",) * 10**5,
        {str(number): "x" * 100 for number in range(10_000)},
        {"k" * 10**5: 1},
        [[[["x" * 1000] * 20] * 20] * 20] * 20,
        deep(40),
        [Message.user("x" * 10**6)] * 3,
        b"x" * 10**6,
        "\x00" * 60_000,
    ],
    ids=[
        "text",
        "field",
        "list",
        "tuple",
        "dict",
        "key",
        "many",
        "deep",
        "structs",
        "bytes",
        "nul",
    ],
)
def test_a_line_has_a_bound(payload):
    """Whatever it is to hold; it says how long it would have been."""
    line = line_of(RECORD, {"name": "big", "payload": payload})
    found = json.loads(line)

    assert len(line) <= LINE_BYTES_MAX
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert found["data"]["cut_from_bytes"] > LINE_BYTES_MAX
    assert found["data"]["name"] == "big"


def test_what_fits_is_whole():
    """Up to the last byte."""
    room = LINE_BYTES_MAX - len(line_of(RECORD, {"payload": ""}))
    fits, is_long = ({"payload": "x" * (room + more)} for more in (0, 1))

    assert json.loads(line_of(RECORD, fits))["data"] == fits
    assert "cut_from_bytes" in json.loads(line_of(RECORD, is_long))["data"]


def test_a_cut_text_keeps_its_beginning():
    """It says how much is missing; what is short stays as it is."""
    data = {"message": Message(id="m-1", role="user", content="y" * 100_000), "count": 3}
    found = json.loads(line_of(RECORD, data))["data"]

    assert found.pop("cut_from_bytes") > 100_000
    assert found == {
        "message": {
            "id": "m-1",
            "role": "user",
            "content": "y" * 8192 + "… (91808 more characters)",
        },
        "count": 3,
    }


def test_a_cut_list_keeps_its_first_entries():
    """So does a dict."""
    data = {"list": ["word" * 10] * 5000, "dict": {str(n): "x" * 100 for n in range(1000)}}
    found = json.loads(line_of(RECORD, data))["data"]

    assert found["list"] == ["word" * 10] * 256 + ["… (4744 more)"]
    assert list(found["dict"]) == [*(str(n) for n in range(256)), "…"]
    assert found["dict"]["…"] == "744 more"


def test_a_line_that_nothing_makes_short_has_no_data():
    """A payload with very many fields at each level."""
    wide = 1
    for _ in range(7):
        wide = [wide] * 4
    record = {**RECORD, "note": "x" * (LINE_BYTES_MAX - 1000)}
    found = json.loads(line_of(record, {"payload": wide}))

    assert list(found["data"]) == ["cut_from_bytes"]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("\ud800", "UnicodeEncodeError"),
        ({(1, 2): 3}, "TypeError"),
        (object(), "TypeError"),
    ],
    ids=["surrogate", "key", "object"],
)
def test_what_json_does_not_take_is_left_out(payload, why):
    """The line says why."""
    found = json.loads(line_of(RECORD, {"payload": payload}))["data"]

    assert list(found) == ["unwritable"]
    assert found["unwritable"].startswith(why)


def test_what_is_deeper_than_the_stack_is_left_out():
    """It ends no session."""
    found = json.loads(line_of(RECORD, deep(100_000)))["data"]

    assert "RecursionError" in found["unwritable"]


@pytest.mark.parametrize(
    ("payload", "found"),
    [(b"\x00\xff", "AP8="), (float("nan"), None), ({1: 2}, {"1": 2}), ("a\nb", "a\nb")],
)
def test_what_messagepack_has_and_json_has_not(payload, found):
    """Bytes are base64, a number that is none is null, keys are texts."""
    assert msgspec.json.decode(line_of(RECORD, {"payload": payload}))["data"]["payload"] == found
