"""Types that msgspec does not know: their schema, their values, and how results are written."""

import dataclasses
import datetime as dt
import enum
import inspect
import pickle
import threading
from typing import Annotated, NamedTuple, NewType

import msgspec
import pydantic
import pytest

from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions import ToolError, tool
from cmdc_runtime.extensions.schema import arguments_struct, text_of
from cmdc_runtime.packing import byvalue


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"


class Part(pydantic.BaseModel):
    """A part."""

    colour: Colour = Colour.RED


class Order(pydantic.BaseModel):
    """What is wanted."""

    model_config = pydantic.ConfigDict(strict=True)
    count: int = pydantic.Field(ge=1, description="So many.")
    on: dt.date | None = None
    parts: list[Part] = []


class Other:
    """A place for a second model with a part of the same name."""

    class Part(pydantic.BaseModel):
        """Another part."""

        size: int

    class Order(pydantic.BaseModel):
        """Another order."""

        parts: list["Other.Part"]


Other.Order.model_rebuild(_types_namespace={"Other": Other})


@dataclasses.dataclass
class Basket:
    """What holds orders."""

    orders: list[Order]


class Pair(NamedTuple):
    """Two."""

    left: int
    right: Colour


class Bad(pydantic.BaseModel):
    """A model of something that no JSON can describe."""

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    thing: object.__class__


@tool
def buy(order: Order, other: Other.Order, basket: Basket) -> str:
    """Buy it.

    Args:
        order: what is wanted first.
        other: what is wanted next.
        basket: where the rest is.
    """
    return f"{order}{other}{basket}"


def test_a_model_has_its_schema_with_descriptions():
    """Parts of two models that share a name stay apart, and every reference leads somewhere."""
    properties, definitions = buy.parameters["properties"], buy.parameters["definitions"]
    parts = [one for one in definitions if one.endswith("Part")]
    written = msgspec.json.encode(buy.parameters).decode()

    assert properties["order"]["description"] == "What is wanted."
    assert properties["order"]["properties"]["count"]["description"] == "So many."
    assert properties["basket"]["description"] == "where the rest is."
    assert sorted(definitions[one]["description"] for one in parts) == ["A part.", "Another part."]
    assert all(f'"#/definitions/{one}"' in written for one in definitions)
    assert "$defs" not in written


def test_arguments_become_models():
    """At any depth, and as from JSON: a strict model takes a date as text."""
    order = {"count": 1, "on": "2026-01-02", "parts": [{"colour": "red"}]}
    given = {"order": order, "other": {"parts": [{"size": 2}]}, "basket": {"orders": [order]}}
    found = buy.check(given)
    wanted = Order(count=1, on=dt.date(2026, 1, 2), parts=[Part(colour=Colour.RED)])

    assert found["order"] == wanted
    assert found["basket"] == Basket([wanted])
    assert found["other"].parts[0].size == 2


def test_what_does_not_fit_is_reported_with_its_place():
    """In one line, in the words of the library, without its addresses."""
    order = {"count": 0, "parts": [{"colour": "blue"}]}
    with pytest.raises(ToolError) as caught:
        buy.check({"order": {"count": 1}, "other": {"parts": []}, "basket": {"orders": [order]}})

    assert str(caught.value) == (
        "Invalid arguments for buy: count: Input should be greater than or equal to 1;"
        " parts.0.colour: Input should be 'red' - at `$.basket.orders[0]`"
    )


def test_a_model_without_a_schema_is_refused():
    """By the name of the parameter, when the tool is made."""
    with pytest.raises(InvalidTool, match="parameter 'bad' has no JSON Schema"):

        @tool
        def take(bad: Annotated[Bad, "whatever"]) -> str:
            return str(bad)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (3, "3"),
        (1.5, "1.5"),
        (None, "None"),
        (True, "True"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Colour.RED, '"red"'),
        (Pair(1, Colour.RED), '[1,"red"]'),
        (Part(), '{"colour":"red"}'),
        ([Basket([Order(count=1)])], '[{"orders":[{"count":1,"on":null,"parts":[]}]}]'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (object, "<class 'object'>"),
    ],
)
def test_a_result_is_written_as_json(value, text):
    """What has a form in JSON is written in it; the rest as Python writes it."""
    assert text_of(value) == text


class Scores(pydantic.BaseModel):
    """A model that may hold two keys that JSON has one form for."""

    by_key: dict[int | str, int]


ALIKE = [
    {1: "a", "1": "b"},
    {None: "a", 2: "b", "2": "c"},
    {Colour.RED: 1, "red": 2},
    {dt.date(2026, 1, 2): 1, "2026-01-02": 2},
    [{"x": ({1.5: 1, "1.5": 2},)}],
    Basket([{1: 1, "1": 2}]),
    Scores(by_key={1: 1, "1": 2}),
]


@pytest.mark.parametrize("value", ALIKE, ids=repr)
def test_no_key_is_lost_to_another_that_json_writes_alike(value):
    """Such a value is shown as Python writes it, at any depth."""
    assert text_of(value) == str(value)


def test_keys_that_differ_are_written_as_json():
    """One form for each, in whatever dict of the value it stands."""
    assert text_of([{1: "a", "2": {"1": 3}}, {"1": 4}]) == '[{"1":"a","2":{"1":3}},{"1":4}]'


Bounded = Annotated[int, pydantic.Field(gt=3)]
Named = NewType("Named", Bounded)


@dataclasses.dataclass
class Bin:
    """It says more than msgspec looks at."""

    size: Bounded


class Shelf(msgspec.Struct):
    """It holds such, and itself."""

    bins: dict[str, Bin] = {}
    shelves: "list[Shelf]" = []


class Slot(NamedTuple):
    """One in a tuple."""

    size: Bounded = 4


@dataclasses.dataclass
class Unsure:
    """Its default is no value."""

    size: int = pydantic.Field(default=4)


@pydantic.dataclasses.dataclass
class Checked:
    """Nothing would call its validators."""

    size: int


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (list[Shelf], "Bin.size, in Shelf.bins"),
        (Annotated[list[Shelf], pydantic.Field(min_length=1)], "min_length=1"),
        (Annotated[int, pydantic.Field(gt=3, alias="m")], "alias='m': the argument is called 'n'"),
    ],
    ids=["in a Struct", "of Structs", "alias"],
)
def test_what_pydantic_cannot_check_is_refused(kind, where):
    """By the name of the parameter, with the class and the field where it stands in one."""

    def count(n):
        """Count."""

    count.__annotations__ = {"n": kind}
    with pytest.raises(InvalidTool, match=f"parameter 'n': nothing would check .*{where}.*: write"):
        tool(count)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (Annotated[int, pydantic.Field(gt=3)], 4, 3),
        (Named, 4, 3),
        (dict[str, Named], {"a": 4}, {"a": 3}),
        (pydantic.conint(gt=3), 4, 3),
        (pydantic.constr(min_length=2), "ab", "a"),
        (list[Annotated[str, pydantic.Field(pattern="a")]], ["a"], ["b"]),
        (Annotated[int, pydantic.Field(gt=3)] | None, None, 3),
        (Bin, Bin(4), {"size": 3}),
        (Slot, Slot(4), [3]),
        (Unsure, Unsure(4), {"size": "x"}),
        (Checked, Checked(4), {"size": "x"}),
    ],
    ids=[
        *("field", "new type", "new type in a dict", "conint", "constr", "in a list", "or none"),
        *("dataclass", "NamedTuple", "default", "of pydantic"),
    ],
)
def test_constraints_of_pydantic_are_checked(kind, right, wrong):
    """On plain types and on fields of classes; the arguments arrive as annotated."""

    def count(n):
        """Count."""

    count.__annotations__ = {"n": kind}
    made = tool(count)
    plain = msgspec.to_builtins(right) if not isinstance(right, pydantic.BaseModel) else right

    assert made.check({"n": plain}) == {"n": right}
    assert type(made.check({"n": plain})["n"]) is type(right)
    with pytest.raises(ToolError, match=r"Invalid arguments for count: .* - at `\$.n`"):
        made.check({"n": wrong})


@tool
def order_some(
    count: int = pydantic.Field(1, ge=1, le=9, description="So many."),
    colour: Annotated[Colour, pydantic.Field(description="Of which.")] = Colour.RED,
    note: str = pydantic.Field(description="What else.", examples=["soon"]),
    tags: list[str] = pydantic.Field(default_factory=list, max_length=2),  # noqa: B008 - as above
) -> str:
    """Order some."""
    return f"{count}{colour}{note}{tags}"


def test_what_a_field_says_is_in_the_schema():
    """Descriptions, examples, bounds and the default, of an annotation or as a default."""
    written = order_some.parameters["properties"]

    assert order_some.parameters["required"] == ["note"]
    assert written["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 1,
        "description": "So many.",
    }
    assert written["colour"] == {
        "allOf": [{"$ref": "#/definitions/Colour"}],
        "description": "Of which.",
        "default": "red",
    }
    assert written["note"] == {
        "type": "string",
        "description": "What else.",
        "examples": ["soon"],
    }
    assert written["tags"]["maxItems"] == 2


def test_defaults_of_fields_are_those_of_the_arguments():
    """The factory runs for each call."""
    first, second = order_some.check({"note": "a"}), order_some.check({"note": "a"})

    assert first == {"count": 1, "colour": Colour.RED, "note": "a", "tags": []}
    assert first["tags"] is not second["tags"]


def test_a_tool_with_fields_travels():
    """By value too: the class that checks an argument is made again where the tool is loaded."""
    found = pickle.loads(byvalue.dumps(order_some))

    assert found.check({"count": 2, "note": "a"})["count"] == 2
    with pytest.raises(ToolError, match="less than or equal to 9"):
        found.check({"count": 10, "note": "a"})


@pytest.mark.parametrize(
    "value",
    [Image(b"x"), File("a.pdf"), [Image("a.png")], ("see", Image("a.png")), ["a", File(b"x")]],
    ids=["image", "file", "images", "with a text", "files"],
)
def test_an_image_is_no_result(value):
    """What it is made of would be read as text, all its bytes as base64."""
    with pytest.raises(ValueError, match="it is an image or a file, which models do not take"):
        text_of(value)


def test_a_parameter_without_an_annotation_is_refused():
    """By its name, with what to write."""
    with pytest.raises(InvalidTool, match="'limit' has no annotation: write its type, as in"):

        @tool
        def search(query: str, limit=10) -> str:
            return query * limit


def test_a_type_that_json_has_no_form_for_is_refused_with_the_way_out():
    """It names the parameter, and what can be taken."""
    with pytest.raises(
        InvalidTool, match=r"parameter 'lock' has no JSON Schema: .*: take what JSON"
    ):

        @tool
        def hold(lock: threading.Lock) -> str:
            return str(lock)


def test_a_new_type_is_what_it_is_made_of():
    """In the schema and in the arguments."""
    name = NewType("name", str)

    @tool
    def greet(whom: name, others: list[name]) -> str:
        """Greet them."""
        return f"{whom}{others}"

    written = greet.parameters["properties"]
    assert written == {
        "whom": {"type": "string"},
        "others": {"type": "array", "items": {"type": "string"}},
    }
    assert greet.check({"whom": "a", "others": ["b"]}) == {"whom": "a", "others": ["b"]}


def test_a_tool_that_an_older_program_took_is_opened():
    """Its session goes on, with what was checked then."""
    fields = (("n", Bin, inspect.Parameter.empty),)

    assert arguments_struct(fields).__struct_fields__ == ("n",)
