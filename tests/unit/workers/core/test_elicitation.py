"""Questions of MCP servers as values: what the user reads, and what an answer means."""

import pytest

from workers.core import elicitation
from workers.core.elicitation import Answered

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "What you are called"},
        "age": {"type": "integer"},
        "mood": {"type": "string", "enum": ["good", "bad"]},
    },
    "required": ["name"],
}
MANY = {"properties": {str(number): {} for number in range(50)}}
"""As many values as a form may have."""

SEVEN = Answered("accept", {"it": 7})


def form(**one):
    return {"type": "object", "properties": {"it": one}, "required": ["it"]}


def test_a_form_is_one_question():
    """Each value stands in a line of its own."""
    asked = elicitation.question("files", "Who?", PERSON)

    assert asked.text == (
        "The MCP server 'files' asks: Who?\n"
        "- name: What you are called\n- age: integer\n- mood: string (good, bad)"
    )
    assert asked.options == ()


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ({}, ("accept", "decline")),
        (form(type="boolean"), ("true", "false")),
        (form(type="string", enum=["a", "b"]), ("a", "b")),
        (form(type="string", oneOf=[{"const": "a", "title": "A"}]), ("a",)),
        (form(type="string", oneOf=[{"title": "A"}, {"const": "b"}]), ("b",)),
        (form(type="string"), ()),
    ],
)
def test_what_can_be_chosen_is_offered(schema, options):
    """Of the only value, or whether at all."""
    assert elicitation.question("files", "Which?", schema).options == options


def test_an_address_is_to_be_opened():
    """The user says whether that is done."""
    asked = elicitation.url_question("files", "Sign in.", "https://example.org")

    assert "Open https://example.org" in asked.text
    assert asked.options == ("accept", "decline")


@pytest.mark.parametrize(
    ("response", "schema", "found"),
    [
        (None, PERSON, Answered("cancel")),
        ("cancel", PERSON, Answered("cancel")),
        (" Decline ", PERSON, Answered("decline")),
        ("no", None, Answered("decline")),
        ("accept", None, Answered("accept")),
        ({"name": "Ann"}, PERSON, Answered("accept", {"name": "Ann"})),
        ('{"name": "Ann", "age": 7}', PERSON, Answered("accept", {"name": "Ann", "age": 7})),
        ({"name": "Ann", "age": "7"}, PERSON, Answered("accept", {"name": "Ann", "age": 7})),
        ("Ann", form(type="string"), Answered("accept", {"it": "Ann"})),
        ("no", form(type="boolean"), Answered("accept", {"it": False})),
        ("false", form(type="boolean"), Answered("accept", {"it": False})),
        ("true", form(type="boolean"), Answered("accept", {"it": True})),
        (" Yes ", form(type="boolean"), Answered("accept", {"it": True})),
        ({"0": "x"}, MANY, Answered("accept", {"0": "x"})),
        (7, form(type="number"), Answered("accept", {"it": 7})),
        (True, form(type="boolean"), Answered("accept", {"it": True})),
        ("1.5", form(type="number"), Answered("accept", {"it": 1.5})),
        ("b", form(enum=["a", "b"]), Answered("accept", {"it": "b"})),
        (["a"], form(type="array"), Answered("accept", {"it": ["a"]})),
        ({"it": 7}, {"properties": {"it": {"type": "integer"}}, "required": 7}, SEVEN),
        ("7", {"properties": {"it": {"type": "integer"}}, "required": [{}]}, SEVEN),
    ],
)
def test_an_answer_is_taken(response, schema, found):
    """As a dict of the form, as JSON of one, or as its only value."""
    assert elicitation.answered(response, schema) == found


@pytest.mark.parametrize(
    ("response", "schema", "problem"),
    [
        ("Ann", PERSON, "it is no dict of name, age, mood"),
        (7, PERSON, "it is no dict"),
        ({"age": 7}, PERSON, "name is missing"),
        ({"name": "Ann", "shoe": 7}, PERSON, "it has shoe, which nobody asks for"),
        ({"name": 7}, PERSON, "name: expected string, got int"),
        ({"name": "Ann", "age": "old"}, PERSON, "age: expected integer, got str"),
        ({"name": "Ann", "age": True}, PERSON, "age: expected integer, got bool"),
        ({"name": "Ann", "mood": "so"}, PERSON, "mood: expected one of good, bad"),
        (7, form(type="boolean"), "it: expected boolean, got int"),
        ("maybe", form(type="boolean"), "it: expected boolean, got str"),
        ("17", form(type="integer", minimum=18), "it: expected at least 18"),
        ([7], form(type="number"), "it: expected number, got list"),
        ("many", form(type="number"), "it: expected number, got str"),
        ("so", {"properties": {str(n): {} for n in range(51)}}, "at most 50 values"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(response, schema, problem):
    """The text says what is wrong with it."""
    with pytest.raises(ValueError, match=problem):
        elicitation.answered(response, schema)
