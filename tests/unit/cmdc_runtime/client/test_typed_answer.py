"""Answers of a type: the schema that is asked for, and the value that an answer's text becomes."""

import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest

from cmdc_runtime.client.typed_answer import form_of, with_form
from cmdc_runtime.errors import InvalidOptions, ResultInvalid
from cmdc_runtime.options import Options


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"


class Town(msgspec.Struct):
    """A place."""

    name: str
    colour: Colour = Colour.RED


class Part(msgspec.Struct):
    """No field of it is optional."""

    size: int


class Whole(msgspec.Struct):
    """Nor of this."""

    parts: list[Part]


class Order(pydantic.BaseModel):
    """What is wanted."""

    count: int = pydantic.Field(ge=1)

    @pydantic.field_validator("count")
    @classmethod
    def even(cls, count):
        """Refuse what a schema cannot."""
        if count % 2:
            raise ValueError("odd")
        return count


class Cat(pydantic.BaseModel):
    """A cat."""

    kind: Literal["cat"] = "cat"
    lives: int


class Dog(pydantic.BaseModel):
    """A dog."""

    kind: Literal["dog"] = "dog"
    tricks: list[str]


@dataclass
class Near:
    """No model is in it."""

    metres: int


@dataclass
class Far:
    """As little as in the other."""

    miles: int


@dataclass
class Household:
    """One of these, further down."""

    pet: Cat | Dog | None


@dataclass
class Line:
    """A line."""

    order: Order


class Row(TypedDict):
    """A row."""

    size: int


class Pair(NamedTuple):
    """Two."""

    left: int
    right: str


ANSWERS = [
    (Town, '{"name": "Rome"}', Town("Rome")),
    (Order, '{"count": 2}', Order(count=2)),
    (Line, '{"order": {"count": 2}}', Line(Order(count=2))),
    (Row, '{"size": 1}', {"size": 1}),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Pair, '{"result": [1, "a"]}', Pair(1, "a")),
    (int, '{"result": 5}', 5),
    (bool, '{"result": true}', True),
    (list[str], '{"result": ["a"]}', ["a"]),
    (list[Order], '{"result": [{"count": 2}]}', [Order(count=2)]),
    (list[Town], '```json\n{"result": [{"name": "Rome"}]}\n```', [Town("Rome")]),
    (Literal["yes", "no"], '{"result": "no"}', "no"),
    (Colour, '{"result": "red"}', Colour.RED),
    (Town | None, '{"result": null}', None),
    (int | list[int], '{"result": [1]}', [1]),
    (Annotated[int, msgspec.Meta(ge=3)], '{"result": 3}', 3),
    (Annotated[int, pydantic.Field(ge=3)], '{"result": 3}', 3),
    (Cat | Dog, '{"result": {"tricks": ["sit"]}}', Dog(tricks=["sit"])),
    (list[Cat | Dog], '{"result": [{"kind": "cat", "lives": 9}]}', [Cat(lives=9)]),
    (
        Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
        '{"result": {"kind": "dog", "tricks": []}}',
        Dog(tricks=[]),
    ),
    (Cat | int, '{"result": 5}', 5),
    (Household, '{"pet": {"kind": "dog", "tricks": []}}', Household(Dog(tricks=[]))),
]


@pytest.mark.parametrize(("kind", "text", "found"), ANSWERS, ids=lambda one: str(one)[:40])
def test_an_answer_of_any_type_becomes_a_value(kind, text, found):
    """Its schema is that of an object, and allows the answer."""
    form = form_of(kind)
    jsonschema.validate(msgspec.json.decode(text.strip("`json\n")), form.schema)

    assert form.schema["type"] == "object"
    assert form.read(text) == found
    assert type(form.read(text)) is type(found)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Town, "Rome", "malformed"),
        (Town, "", "truncated"),
        (Town, '{"name": 1}', "Expected `str`, got `int` - at `$.name`"),
        (Order, '{"count": 1}', "count: Value error, odd"),
        (list[Order], '{"result": [{"count": 1}]}', "0.count: Value error, odd"),
        (int, '{"answer": 1}', "it has no 'result'"),
        (int, "5", "Expected `object`, got `int`"),
        (Annotated[int, msgspec.Meta(ge=3)], '{"result": 2}', "Expected `int` >= 3"),
    ],
)
def test_an_answer_that_is_none_is_reported_with_its_text(kind, text, problem):
    """What is wrong is one line, which the model reads."""
    with pytest.raises(ResultInvalid) as caught:
        form_of(kind).read(text)

    assert caught.value.text == text
    assert problem in caught.value.problems[0]
    assert "does not fit result= or response_format: " in str(caught.value)


def test_objects_without_an_optional_field_are_closed():
    """A vendor can bind a model to such a schema; with one that is optional it cannot."""
    whole, town = form_of(Whole).schema, form_of(Town).schema
    part = whole["$defs"]["Part"]

    assert whole["additionalProperties"] is False
    assert part["additionalProperties"] is False
    assert form_of(int).schema["additionalProperties"] is False
    assert "additionalProperties" not in town


@pytest.mark.parametrize("kind", [5, "Town", object(), threading.Lock, set[object]])
def test_what_is_no_type_is_refused(kind):
    """Before anything is sent."""
    with pytest.raises(InvalidOptions, match="result: "):
        form_of(kind)


@pytest.mark.parametrize("kind", [Town | Part, list[Town | Part], Near | Far, Town | Near])
def test_a_union_whose_parts_look_alike_is_refused_with_the_way_out(kind):
    """What tells them apart is said in words, not only what is not supported."""
    with pytest.raises(InvalidOptions) as caught:
        form_of(kind)

    (problem,) = caught.value.problems
    assert "tag the Structs, as in class Cat(msgspec.Struct, tag=True)" in problem


def test_a_form_beside_a_response_format_is_refused():
    """There is one form of answers; the keyword and the struct both count."""
    form = form_of(int)

    assert with_form({"model": "a:b"}, form, None)["response_format"] == form.schema
    assert with_form({"model": "a:b"}, None, None) == {"model": "a:b"}
    with pytest.raises(InvalidOptions, match="give one of the two"):
        with_form({"response_format": {}}, form, None)
    with pytest.raises(InvalidOptions, match="give one of the two"):
        with_form({}, form, Options(response_format={"type": "object"}))
