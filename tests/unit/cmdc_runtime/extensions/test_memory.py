"""What a store of one's own checks with: data, filters, and a memory that comes back."""

import pytest

from cmdc_runtime.extensions.memory import (
    DATA_BYTES_MAX,
    Memory,
    matches,
    packed_data,
    unpacked_data,
)


def test_a_memory_has_its_text_at_hand():
    """It is a part of the data."""
    memory = Memory(id="a", data={"content": "tea", "size": 1}, inserted_at_ms=5)

    assert memory.content == "tea"
    assert memory.score is None


def test_data_comes_back_new():
    """Nothing of it is shared with what was packed, or with another copy."""
    data = {"content": "tea", "tags": ["a"]}
    body = packed_data(data)
    data["tags"].append("b")
    unpacked_data(body)["tags"].append("c")

    assert unpacked_data(body) == {"content": "tea", "tags": ["a"]}
    assert unpacked_data(body.decode()) == unpacked_data(body)


def test_data_is_bounded_as_a_whole():
    """What stands beside the text counts too."""
    room = DATA_BYTES_MAX - len(packed_data({"content": "", "x": ""}))

    assert len(packed_data({"content": "", "x": "y" * room})) == DATA_BYTES_MAX
    with pytest.raises(ValueError, match=f"more than {DATA_BYTES_MAX}"):
        packed_data({"content": "", "x": "y" * (room + 1)})


def test_data_without_an_end_is_refused():
    """It could not be written down."""
    endless = {"content": ""}
    endless["again"] = endless
    with pytest.raises(ValueError, match="what JSON takes"):
        packed_data(endless)


@pytest.mark.parametrize(
    ("filters", "is_match"),
    [
        (None, True),
        ({}, True),
        ({"size": 1}, True),
        ({"size": 1.0}, True),
        ({"size": True}, False),
        ({"is_hot": True}, True),
        ({"is_hot": 1}, False),
        ({"note": None}, True),
        ({"other": None}, False),
        ({"size": 1, "is_hot": False}, False),
    ],
)
def test_filters_are_equal_values(filters, is_match):
    """Of every key, and none that is missing; a number is no truth."""
    assert matches({"size": 1, "is_hot": True, "note": None}, filters) is is_match
