"""Values of forms: what the user reads of their bounds, and what fits."""

import pytest

from workers.core.form_fields import choices, described, typed

TITLED = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
NAMED = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
SEVERAL = {"type": "array", "items": {"anyOf": TITLED}, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("one", "text"),
    [
        ({}, "a value"),
        ({"type": "integer"}, "integer"),
        ({"type": "integer", "description": "Age"}, "Age (integer)"),
        ({"type": "string", "title": "Name"}, "Name"),
        (
            {"type": "string", "minLength": 1, "maxLength": 5},
            "string (a length of at least 1; a length of at most 5)",
        ),
        ({"type": "number", "minimum": 0.5, "maximum": 9}, "number (at least 0.5; at most 9)"),
        ({"type": "string", "format": "email"}, "string (an email address)"),
        ({"type": "string", "format": "color", "pattern": "a\n+"}, "string (as the pattern a +)"),
        ({"type": "string", "enum": ["a", "b"]}, "string (a, b)"),
        (NAMED, "string (r: Red, g: Green)"),
        ({"type": "string", "oneOf": TITLED}, "string (#f00: Red, #0f0: Green)"),
        (
            SEVERAL,
            "array (at least 1 of them; at most 2 of them; any of #f00: Red, #0f0: Green)",
        ),
        ({"type": "integer", "minLength": 1, "minimum": True, "maximum": "9"}, "integer"),
        ({"type": "array", "items": 7, "oneOf": 7}, "array"),
        ({"type": "string", "oneOf": [7, {"title": "A"}]}, "string"),
    ],
)
def test_a_value_is_described_with_its_bounds(one, text):
    """What a server writes beside the protocol is left out."""
    assert described(one) == text


def test_what_can_be_chosen_has_its_title():
    """A list of titles that is too short names those that it has."""
    assert choices({"enum": ["a", "b"], "enumNames": ["A"]}) == {"a": "A", "b": "b"}
    assert choices({"type": "array", "items": {"type": "string", "enum": ["a"]}}) == {"a": "a"}
    assert choices({"type": "string"}) == {}


@pytest.mark.parametrize(
    ("one", "value", "found"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 2}, "ab", "ab"),
        ({"type": "string", "pattern": "b"}, "a", "a"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "9", 9),
        ({"type": "number", "minimum": 1}, 1, 1),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "string", "format": "email"}, "a@b", "a@b"),
        ({"type": "string", "format": "uri"}, "urn:a", "urn:a"),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        ({"type": "string", "format": "date-time"}, "2024-02-29t10:00:00.5z", ...),
        ({"type": "string", "format": "date-time"}, "2024-02-29T10:00:00+02:00", ...),
        ({"type": "string", "format": "color"}, "red", "red"),
        ({"type": "integer", "format": "date"}, 7, 7),
        (NAMED, "Red", "r"),
        (NAMED, "g", "g"),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        (SEVERAL, ["#f00", "Green"], ["#f00", "#0f0"]),
        (SEVERAL, "Red, #0f0,", ["#f00", "#0f0"]),
        (SEVERAL, '["Red"]', ["#f00"]),
        ({"type": "boolean"}, " YES ", True),
        ({"type": "object"}, {"a": 1}, {"a": 1}),
    ],
)
def test_what_fits_is_taken(one, value, found):
    """Of the type that is asked for, and by its value where it was chosen by its title."""
    assert typed("it", value, one) == (value if found is ... else found)


@pytest.mark.parametrize(
    ("one", "value", "problem"),
    [
        ({"type": "string", "minLength": 3}, "ab", "a length of at least 3"),
        ({"type": "string", "maxLength": 1}, "ab", "a length of at most 1"),
        ({"type": "integer", "minimum": 18}, "17", "at least 18"),
        ({"type": "number", "maximum": 1.5}, 2, "at most 1.5"),
        ({"type": "number"}, "nan", "nan is no number"),
        ({"type": "number"}, float("inf"), "inf is no number"),
        ({"type": "integer"}, "1" * 5000, "expected integer, got str"),
        ({"type": "string", "format": "email"}, "a b@c", "an email address"),
        ({"type": "string", "format": "email"}, "no", "an email address"),
        ({"type": "string", "format": "uri"}, "example.org", "a URI"),
        ({"type": "string", "format": "date"}, "2023-02-29", "a date as "),
        ({"type": "string", "format": "date"}, "20230228", "a date as "),
        ({"type": "string", "format": "date-time"}, "2024-02-29T10:00:00", "a time as "),
        ({"type": "string", "format": "date-time"}, "2024-02-30T10:00:00Z", "a time as "),
        ({"type": "string", "format": "date-time"}, "2024-02-29", "a time as "),
        (NAMED, "Blue", "one of r, g"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}] * 2}, "B", "one of a"),
        (SEVERAL, "Red, Blue", "one of #f00, #0f0"),
        (SEVERAL, [], "at least 1 of them"),
        (SEVERAL, ["Red", "Green", "Red"], "at most 2 of them"),
        (SEVERAL, 7, "expected array, got int"),
        (SEVERAL, [["Red"], {}], "one of #f00, #0f0"),
        ({"type": "boolean"}, "maybe", "expected boolean, got str"),
    ],
)
def test_what_breaks_a_bound_is_refused(one, value, problem):
    """The text says what was expected."""
    with pytest.raises(ValueError, match=r"^it: ") as caught:
        typed("it", value, one)

    assert problem in str(caught.value)
