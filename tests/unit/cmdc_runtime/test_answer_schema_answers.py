"""An answer has the form that was asked for, or the model learns in one line why not."""

import json

import msgspec
import pytest

from cmdc_runtime import bounded_check
from cmdc_runtime.answer_schema import answer_problem, parsed_text, repair_request, schema_problem

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


class Point(msgspec.Struct):
    """A type of an application, with a tuple, which only newer drafts can describe."""

    at: tuple[int, str]


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('\n {"a": 1} \n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```\n', '{"a": 1}'),
        ('Here it is:\n\n  ```JSON \n{\n"a": 1\n}\n  ``` \nDone.', '{\n"a": 1\n}'),
        ('```json\r\n{"a": "```"}\r\n```\r\n', '{"a": "```"}'),
        ('```json\n{"a": "\u2028"}\n```', '{"a": "\u2028"}'),
        ("```python\n{}\n```", "```python\n{}\n```"),
        ("```json\n{}", "```json\n{}"),
        ("```json\n{}\n```\n```json\n[]\n```", "```json\n{}\n```\n```json\n[]\n```"),
        ("", ""),
    ],
)
def test_one_code_block_is_taken_off(text, bare):
    """Which of two blocks is meant nobody knows, and other languages are no JSON."""
    assert parsed_text(text) == bare


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "Ada", "age": 36}', None),
        ('```json\n{"name": "Ada"}\n```', None),
        (" \n", "the answer is empty"),
        ("```\n```", "the answer is empty"),
        ("Ada is 36.", "the answer is no JSON: JSON is malformed"),
        ('{"name": "Ada"} ok?', "the answer is no JSON: JSON is malformed"),
        ('{"name": NaN}', "the answer is no JSON: ['name']: nan is not a finite number"),
        ('"\ud800"', "the answer is no JSON: it is no valid UTF-8: half a surrogate pair (U+D800)"),
        ('{"name": "\\ud800"}', "the answer is no JSON: ['name']: it is no valid UTF-8: half a "),
        ("[" * 5000, "the answer is no JSON: it nests more than 64 levels deep"),
        ("{}", "'name' is a required property at $"),
        ('{"name": "Ada", "age": "36"}', "'36' is not of type 'integer' at $.age"),
        ('{"name": "Ada", "x": 1}', "Additional properties are not allowed ('x' was unexpected)"),
        ('{"name": 1, "age": -1}', "-1 is less than the minimum of 0 at $.age; 1 is not of type"),
    ],
)
def test_a_problem_is_reported_with_its_place(text, found):
    """The line says what is wrong and where, so that a model can mend it."""
    reported = answer_problem(PERSON, text)

    assert reported is None if found is None else reported.startswith(found)


def test_a_pattern_without_an_end_is_reported(monkeypatch):
    """Whoever wrote the pattern reads of it, and no process is lost."""
    monkeypatch.setattr(bounded_check, "CHECK_CPU_S", 0.05)
    reported = answer_problem({"pattern": "^(a+)+$"}, json.dumps("a" * 40 + "b"))

    assert reported.startswith(
        "the answer cannot be checked: it took more than 0.05 s of CPU time, "
    )
    assert "pattern" in reported


def test_a_problem_is_one_bounded_line():
    """Five problems explain the rest, and none brings the whole answer along."""
    reported = answer_problem({"items": {"type": "string"}}, json.dumps([["x\ny" * 5000]] * 9))

    assert "\n" not in reported
    assert reported.endswith("; and 4 more")
    assert len(reported) < 2000


@pytest.mark.parametrize(("wrong", "more"), [(5, ""), (6, "; and 1 more")])
def test_as_many_problems_as_are_named_leave_none_out(wrong, more):
    """What is left out is counted, and only then."""
    reported = answer_problem({"items": {"type": "string"}}, json.dumps([1] * wrong))

    assert reported == "; ".join(f"1 is not of type 'string' at $[{at}]" for at in range(5)) + more


@pytest.mark.parametrize(
    ("text", "fits"),
    [('{"at": [1, "x"]}', True), ('{"at": [1, 2]}', False), ('{"at": [1]}', False)],
)
def test_schemas_of_types_are_understood(text, fits):
    """What msgspec writes is JSON Schema 2020-12, references included."""
    schema = msgspec.json.schema(Point)

    assert schema_problem(schema) is None
    assert (answer_problem(schema, text) is None) is fits


def test_a_schema_may_name_its_draft():
    """The same word means another thing in an older draft."""
    items = {"items": [{"type": "integer"}]}
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", **items}

    assert schema_problem(draft7) is None
    assert answer_problem(draft7, '["x"]') == "'x' is not of type 'integer' at $[0]"
    assert schema_problem(items) is not None


@pytest.mark.parametrize("reference", ["#/$defs/Gone", "https://example.invalid/schema.json"])
def test_references_are_not_fetched(reference):
    """A schema that refers to something outside is reported, without asking the network."""
    reported = answer_problem({"$ref": reference}, "{}")

    assert reported == f"response_format refers to {reference!r}, which is nowhere"


@pytest.mark.parametrize("draft", ["https://example.invalid/draft", "http://["])
def test_an_unknown_draft_is_read_as_the_newest(draft):
    """A ``$schema`` is often a name that somebody gave to a schema of the own."""
    schema = {"$schema": draft, "type": "integer"}

    assert schema_problem(schema) is None
    assert answer_problem(schema, "7") is None
    assert answer_problem(schema, "[]") == "[] is not of type 'integer' at $"


def test_a_schema_that_refers_to_itself_ends():
    """Around a corner, it only shows at an answer, and is reported like a problem of it."""
    schema = {"allOf": [{"$ref": "#"}]}

    assert schema_problem(schema) is None
    assert "nested too deeply" in answer_problem(schema, "{}")


def test_the_model_is_asked_once_more():
    """The request says what was wrong and what to write."""
    text = repair_request("'name' is a required property at $")

    assert "'name' is a required property at $" in text
    assert "JSON alone" in text
