"""Vectors without a model: the same everywhere, of length 1, near where words are shared."""

import math

import pytest

from workers.builtin.stores.vector import hashed

SIZE = 512
EXPECTED = [-0.4631, 0.1069, -0.2137, 0.0000, 0.1069, 0.0000, -0.8193, -0.2137]


def near(one, other):
    """Return the cosine of two texts."""
    pairs = zip(hashed(one, SIZE), hashed(other, SIZE), strict=True)
    return sum(left * right for left, right in pairs)


@pytest.mark.parametrize("dimensions", [7, 512])
@pytest.mark.parametrize(
    "text", ["a", "write a parser", "请写解析器", pytest.param("word " * 5_000, id="long")]
)
def test_vectors_have_length_1(text, dimensions):
    """Whatever the text and however many dimensions."""
    vector = hashed(text, dimensions)

    assert len(vector) == dimensions
    assert math.hypot(*vector) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["", "?!", " "])
def test_no_words_have_no_direction(text):
    """All zeros, which is near to nothing."""
    assert hashed(text, 3) == [0.0, 0.0, 0.0]


def test_a_text_has_the_same_vector_in_every_process():
    """Stored vectors are compared with new ones, so these numbers never change."""
    vector = hashed("Write a parser", 8)

    assert vector == pytest.approx(EXPECTED, abs=1e-4)
    assert hashed("write A parser!", 8) == vector


def test_shared_words_are_near():
    """Then shared parts of words; what shares nothing is far."""
    same = near("write a parser for dates", "a parser for dates in rust")
    form = near("parsing dates", "parser of a date")
    other = near("write a parser for dates", "bake bread with rye")

    assert near("write a parser", "write a parser") == pytest.approx(1.0)
    assert same > 0.5
    assert same > form > 0.1 > abs(other)
    assert near("请写一个解析器", "写解析器吧") > 0.4
