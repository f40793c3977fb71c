"""A reference to no schema is refused where one is defined, by name; an older one is reported."""

import jsonschema
import pytest

from cmdc_runtime.answer_schema import (
    UncheckableError,
    mismatches,
    reference_problem,
    schema_problem,
)
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions.schema import check_schema
from cmdc_runtime.extensions.tool import Tool, as_tool
from cmdc_runtime.options import parse

DRAFT7, NEWEST = jsonschema.Draft7Validator, jsonschema.Draft202012Validator

# The properties of a schema, and what is said of it.
WRONG = {
    "nowhere": (
        {"a": {"$ref": "#/definitions/Gone"}},
        "refers to '#/definitions/Gone', which is nowhere",
    ),
    "network": (
        {"a": {"$ref": "http://127.0.0.1:9/a.json"}},
        "refers to 'http://127.0.0.1:9/a.json', which is nowhere",
    ),
    "list": ({"a": {"$ref": "#/required"}}, "refers to '#/required', which is no schema"),
    "text": (
        {"a": {"$ref": "#/properties/b/type"}, "b": {"type": "integer"}},
        "refers to '#/properties/b/type', which is no schema",
    ),
    "object": (
        {"a": {"$ref": "#/properties/b/enum/0"}, "b": {"enum": [{"type": 5}, 1]}},
        "refers to '#/properties/b/enum/0', which is no schema",
    ),
    "itself": (
        {"a": {"$ref": "#/properties/a"}},
        "refers to '#/properties/a', which refers to itself",
    ),
    "no address": ({"a": {"$ref": "http://[x"}}, "refers to 'http://[x', which is nowhere"),
    "no pointer": ({"a": {"$ref": "#/%zz"}}, "refers to '#/%zz', which is nowhere"),
    "behind a value": (
        {"a": {"$ref": "#/properties/b/0"}, "b": {"enum": [1]}},
        "refers to '#/properties/b/0', which is nowhere",
    ),
    "a secret": (
        {"a": {"$ref": "https://me:hunter2@host/a"}},
        "refers to 'https://[hidden]@host/a', which is nowhere",
    ),
}
# As above; a call without the property shows none of it.
HIDDEN = {
    "in an alternative": (
        {"a": {"anyOf": [{}, {"items": {"$ref": "#/x"}}]}},
        "refers to '#/x', which is nowhere",
    ),
    "behind a reference": (
        {"a": {"$ref": "#/properties/b/const"}, "b": {"const": {"not": {"$ref": "#/x"}}}},
        "refers to '#/x', which is nowhere",
    ),
}
RIGHT = {
    "a definition": {"properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {}}},
    "a tree": {"properties": {"below": {"type": "array", "items": {"$ref": "#"}}}},
    "true": {"properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": True}},
    "a property of that name": {"properties": {"$ref": {"type": "string"}}},
    "a value": {"properties": {"a": {"const": {"$ref": "#/gone"}}}},
    "a draft": {"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}},
    "a name": {
        "properties": {"a": {"$ref": "http://x/a"}},
        "definitions": {"A": {"$id": "http://x/a", "type": "string"}},
    },
}


def schema_with(properties):
    return {"type": "object", "properties": properties, "required": ["a"]}


def made(schema):
    class Odd(Tool):
        name, description, parameters = "odd", "", schema

        def execute(self, _args, _context):
            return ""

    return Odd()


@pytest.mark.parametrize(("properties", "reported"), (WRONG | HIDDEN).values(), ids=WRONG | HIDDEN)
def test_a_tool_with_a_reference_to_no_schema_is_refused(properties, reported):
    """Where it is defined, and not at the first call."""
    with pytest.raises(InvalidTool) as caught:
        as_tool(made(schema_with(properties)))

    assert str(caught.value) == f"tool 'odd': parameters: the schema {reported}"


@pytest.mark.parametrize(("properties", "reported"), (WRONG | HIDDEN).values(), ids=WRONG | HIDDEN)
def test_an_answer_with_a_reference_to_no_schema_is_refused(properties, reported):
    """Of the options of a session, as of a branch or a plugin."""
    schema = schema_with(properties)
    with pytest.raises(InvalidOptions) as caught:
        parse(None, {"model": "openai:gpt-4o", "response_format": schema})

    assert schema_problem(schema) == f"the schema {reported}"
    assert f"response_format: the schema {reported}" in str(caught.value)


@pytest.mark.parametrize(("properties", "reported"), WRONG.values(), ids=WRONG)
def test_an_older_schema_is_reported_in_the_same_words(properties, reported):
    """A session may have one from before the check; its first call or answer shows it."""
    with pytest.raises(UncheckableError) as caught:
        mismatches(DRAFT7, schema_with(properties), {"a": "x", "b": 1})

    assert str(caught.value) == reported


@pytest.mark.parametrize("parts", RIGHT.values(), ids=RIGHT)
def test_what_refers_to_a_schema_is_taken(parts):
    """And what is no reference, whatever it is called."""
    schema = {"type": "object", **parts}

    assert check_schema(schema) is None
    assert schema_problem(schema) is None
    assert mismatches(DRAFT7, schema, {}) == []


def test_a_reference_is_read_by_its_draft():
    """An anchor is a word of the newer ones, and so is a reference that looks for its place."""
    anchored = {"$ref": "#here", "$defs": {"A": {"$anchor": "here"}}}
    dynamic = {"$dynamicRef": "#gone"}

    assert reference_problem(NEWEST, anchored) is None
    assert reference_problem(DRAFT7, anchored) == "refers to '#here', which is nowhere"
    assert reference_problem(NEWEST, dynamic) == "refers to '#gone', which is nowhere"
    assert reference_problem(DRAFT7, dynamic) is None


def test_what_has_no_end_around_a_corner_is_found_at_the_first_value():
    """Whether it ends depends on the value."""
    schema = {"allOf": [{"$ref": "#"}]}

    assert reference_problem(DRAFT7, schema) is None
    with pytest.raises(UncheckableError, match="nested too deeply to be checked"):
        mismatches(DRAFT7, schema, {})
