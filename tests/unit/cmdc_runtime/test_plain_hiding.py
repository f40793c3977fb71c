"""Of a value that is shown in an error, what is named like a credential is hidden."""

import pytest

from cmdc_runtime import plain
from cmdc_runtime.plain import kept_numbers_problem, short

KEY = "hunter2hunter2"


PAIRS = {
    "list": ["x-api-key", KEY],
    "tuple": ("x-api-key", KEY),
    "bytes": (b"x-api-key", KEY.encode()),
    "mixed": [b"X-Api-Key", KEY],
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_pair_may_be_a_header_with_its_value(pair):
    """The name says what it is."""
    assert short(pair) == str(pair).replace(KEY, "[hidden]")
    assert short([pair, ["accept", "json"]]) == str([pair, ["accept", "json"]]).replace(
        KEY, "[hidden]"
    )


def test_a_key_of_a_dict_may_be_bytes():
    """It is a name all the same."""
    assert short({b"model": "gpt-4o", b"x": "gpt-4o"}) == "{b'model': 'gpt-4o', b'x': '[hidden]'}"


@pytest.mark.parametrize(
    "value",
    [["x-api-key", KEY, "more"], [KEY, "x-api-key"], ["accept", KEY], [KEY], ("x-api-key",)],
    ids=["three", "other order", "no credential", "one", "name"],
)
def test_what_is_no_such_pair_is_shown(value):
    """Lists of names are shown in many an error."""
    assert short(value) == str(value)


def test_a_dict_may_be_the_options_of_anything():
    """Each text of it is hidden but for what is known to be none, by its own name."""
    assert short({"model": "gpt-4o", "note": "gpt-4o"}) == "{'model': 'gpt-4o', 'note': '[hidden]'}"


def test_what_can_hold_no_number_does_not_count(monkeypatch):
    """The look ends after so many values, for one that holds itself."""
    monkeypatch.setattr(plain, "VALUES_MAX", 10)
    options = [*("text " * 20).split(), float("nan")]

    assert kept_numbers_problem(options).startswith("[20]: ")
