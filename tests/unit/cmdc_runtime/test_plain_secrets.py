"""Of a value in an error message, what its names tell to be a secret is hidden."""

import pytest

from cmdc_runtime.plain import short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"model": "large-1", "n": 1, "api_key": "opensesame"},
         "{'model': 'large-1', 'n': 1, 'api_key': '[hidden]'}"),
        ({"opensesame": "model"}, "{'opensesame': '[hidden]'}"),
        (("api_key", "opensesame"), "('api_key', '[hidden]')"),
        ([["api_key", "opensesame"]], "[['api_key', '[hidden]']]"),
        ({"headers": [("host", "example.org")]}, "{'headers': [('[hidden]', 'example.org')]}"),
        (("opensesame", "api_key"), "('opensesame', 'api_key')"),
        (["api_key", "opensesame", "more"], "['api_key', 'opensesame', 'more']"),
    ],
    ids=["dict", "value", "pair", "pairs", "headers", "other way round", "no pair"],
)  # fmt: skip
def test_a_text_is_hidden_by_the_name_that_it_has(value, text):
    """The key of a dict is one, and the first of a pair; what has no name is shown."""
    assert short(value) == text
