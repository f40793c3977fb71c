"""What may stand for the form of an answer."""

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
    ("schema", "told"),
    [
        ({"type": "text"}, "no JSON Schema: 'text' is not valid"),
        ({"properties": []}, "no JSON Schema: [] is not of type 'object' at $.properties"),
        ({"$schema": 7}, "no JSON Schema: 7 is not of type 'string'"),
        ({"default": object}, "no JSON: "),
        ({"description": "x" * 500, "type": "y" * 500}, "no JSON Schema: "),
    ],
)
def test_a_dict_that_is_no_schema_is_told(schema, told):
    """Where in it, in a line that stays short."""
    problem = schema_problem(schema)

    assert problem.startswith(told)
    assert len(problem) <= PROBLEM_CHARS_MAX


def test_a_schema_may_name_its_draft():
    """Draft 7 knows a list of ``items``, 2020-12 does not."""
    items = {"items": [{"type": "integer"}]}

    assert schema_problem({"$schema": "http://json-schema.org/draft-07/schema#", **items}) is None
    assert schema_problem(items) is not None


@pytest.mark.parametrize("draft", ["https://example.invalid/draft", "http://["])
def test_an_unknown_draft_is_read_as_the_newest(draft):
    """A ``$schema`` is often a name that somebody gave to a schema of the own."""
    assert schema_problem({"$schema": draft, "type": "integer"}) is None
