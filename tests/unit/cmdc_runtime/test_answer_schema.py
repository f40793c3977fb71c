"""What may stand for the form of an answer."""

import math
import typing

import msgspec
import pydantic
import pytest

from cmdc_runtime.answer_schema import PROBLEM_CHARS_MAX, answer_schema, schema_problem


class City(msgspec.Struct):
    """A form in msgspec's words."""

    name: str
    size: int = 0


class Town(pydantic.BaseModel):
    """A form in pydantic's words."""

    name: str


class Bounds(msgspec.Struct):
    """Its default is no number."""

    high: float = math.inf


class Range(pydantic.BaseModel):
    """The same in pydantic's words."""

    low: float = math.nan


def deep(levels):
    """Return a schema of so many levels."""
    schema = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


class Odd:
    """Looks like pydantic's and is not."""

    @classmethod
    def model_json_schema(cls):
        return "a schema"


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "integer"}, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (typing.Literal["yes", "no"], {"enum": ["no", "yes"]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (
            Town,
            {
                "title": "Town",
                "description": "A form in pydantic's words.",
                "type": "object",
                "properties": {"name": {"title": "Name", "type": "string"}},
                "required": ["name"],
            },
        ),
    ],
)
def test_a_schema_or_a_type_is_taken(form, schema):
    """What comes of it is a JSON Schema that stands by itself."""
    found = answer_schema(form)

    assert found == schema
    assert schema_problem(found) is None


def test_a_struct_is_taken():
    """Its schema brings its definitions along."""
    found = answer_schema(City)

    assert found["$defs"]["City"]["required"] == ["name"]
    assert schema_problem(found) is None


@pytest.mark.parametrize("form", [5, "City", object, City(name="Ulm"), Odd])
def test_what_has_no_schema_is_refused(form):
    """In one line that says what is missing."""
    with pytest.raises(TypeError) as caught:
        answer_schema(form)

    assert "schema" in str(caught.value).lower() or "not supported" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        ({"type": "text"}, "no JSON Schema: 'text' is not valid"),
        ({"properties": []}, "no JSON Schema: [] is not of type 'object' at $.properties"),
        ({"$schema": 7}, "no JSON Schema: 7 is not of type 'string'"),
        ({"default": object}, "no JSON: ['default']: a type is no plain value; leave it"),
        ({"default": math.nan}, "no JSON: ['default']: nan is not a finite number; leave it out; "),
        ({"minimum": -math.inf}, "no JSON: ['minimum']: -inf is not a finite number; "),
        ({"enum": [1, {"a": math.nan}]}, "no JSON: ['enum'][1]['a']: nan is not a finite number; "),
        ({"const": 2**70}, "no JSON: ['const']: it is an integer beyond 64 bits; "),
        ({"examples": ["\ud800"]}, "no JSON: ['examples'][0]: it is no valid UTF-8: half a "),
        ({"default": b"a"}, "no JSON: ['default']: a bytes is no plain value; "),
        ({"default": {1}}, "no JSON: ['default']: a set is no plain value; "),
        (
            {"properties": {1: {}}},
            "no JSON: ['properties']: a key is of type int, and only str can",
        ),
        (
            deep(65),
            'no JSON: it nests more than 64 levels deep; name its parts under "definitions"',
        ),
        (deep(9999), "no JSON: it nests more than 64 levels deep; "),
        ({"pattern": "a{99999999999}"}, "no JSON Schema: the repetition number is too large"),
        ({"description": "x" * 500, "type": "y" * 500}, "no JSON Schema: "),
    ],
)
def test_a_dict_that_is_no_schema_is_reported(schema, reported):
    """Where in it, in a line that stays short."""
    problem = schema_problem(schema)

    assert problem.startswith(reported)
    assert len(problem) <= PROBLEM_CHARS_MAX


@pytest.mark.parametrize(
    ("form", "place"),
    [
        (Bounds, "['$defs']['Bounds']['properties']['high']['default']: inf"),
        (list[Bounds], "['$defs']['Bounds']['properties']['high']['default']: inf"),
        (Range, "['properties']['low']['default']: nan"),
    ],
)
def test_a_type_whose_schema_is_no_json_is_reported(form, place):
    """By the class and the field."""
    assert schema_problem(answer_schema(form)).startswith(f"no JSON: {place} is not a finite")


def test_a_type_with_half_a_character_is_reported():
    """In our words, not in those of a codec."""
    with pytest.raises(TypeError, match="no JSON Schema: it is no valid UTF-8: half a surrogate"):
        answer_schema(typing.Literal["\ud800"])


def test_a_schema_may_name_its_draft():
    """Draft 7 knows a list of ``items``, 2020-12 does not."""
    items = {"items": [{"type": "integer"}]}

    assert schema_problem({"$schema": "http://json-schema.org/draft-07/schema#", **items}) is None
    assert schema_problem(items) is not None


@pytest.mark.parametrize("draft", ["https://example.invalid/draft", "http://["])
def test_an_unknown_draft_is_read_as_the_newest(draft):
    """A ``$schema`` is often a name that somebody gave to a schema of the own."""
    assert schema_problem({"$schema": draft, "type": "integer"}) is None


class Cat(pydantic.BaseModel):
    """A cat."""

    lives: int


class Dog(pydantic.BaseModel):
    """A dog."""

    tricks: int


@pytest.mark.parametrize("kind", [Cat | Dog, list[Cat | Dog]], ids=["union", "list"])
def test_unions_of_models_have_a_schema(kind):
    """It is pydantic's, whatever stands around them."""
    assert answer_schema(kind)["$defs"].keys() == {"Cat", "Dog"}


def test_what_pydantic_says_of_a_plain_type_is_in_its_schema():
    """As in the schema of a typed answer."""
    assert answer_schema(typing.Annotated[int, pydantic.Field(ge=3)]) == {
        "type": "integer",
        "minimum": 3,
    }
