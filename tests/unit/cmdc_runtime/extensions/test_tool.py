"""The contract of tools: what ``@tool`` reads, what ``check`` accepts, what ``as_tool`` refuses."""

import asyncio
import dataclasses
import functools
import math
import pickle
from typing import Annotated, Literal, NamedTuple

import jsonschema
import msgspec
import pydantic
import pytest

from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions import Context, Tool, ToolContext, ToolError, ToolSpec, as_tool, tool
from cmdc_runtime.plain import DEPTH_MAX

CALL = Context(session_id="s-1", call_id="call_1", working_dir="/tmp")


class Point(msgspec.Struct, frozen=True):
    """A place that a model can give."""

    x: int
    y: int = 0


@tool(effects="read", timeout=10)
def search(  # noqa: D417 - the context is not the model's
    query: str,
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10,
    *,
    context: Context,
) -> str:
    """Search the code base,
    every file of it.

    Slow on a large one.

    Args:
        query: What to look for,
            as a plain text.
        limit (int): How many lines.
    """  # noqa: D205 - a summary of two lines is what is read here
    return f"{query} {limit} {context.call_id}"


@tool
async def wait(seconds: float = 1.0) -> str:
    """Wait."""
    return f"waited {seconds}"


@tool
def plot(
    where: Point,
    pair: tuple[int, str] = (1, "a"),
    tags: list[str] = ["new"],  # noqa: B006 - a model's default
    kind: Literal["dot", "line"] = "dot",
) -> str:
    """Plot a point."""
    return f"{where} {pair} {tags} {kind}"


class Multiply(Tool):
    """The full contract, with a schema written by hand."""

    name = "multiply"
    description = "Multiply two numbers."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "maximum": 9}},
        "required": ["a", "b"],
    }

    def execute(self, args, context):
        """Multiply."""
        return str(args["a"] * args["b"])


class Later(Multiply):
    """A subclass that answers later."""

    async def execute(self, args, context):
        """Multiply."""
        return str(args["a"] * args["b"])


def undecorated(query: str) -> str:
    """Look like a tool."""
    return query


def made(**attributes):
    """Return an instance of a tool class with some attributes of its own."""
    return type("Odd", (Multiply,), attributes)()


def made_later(**attributes):
    """Return the same as an async tool."""
    return type("Odd", (Later,), attributes)()


def test_schema_comes_from_the_signature_and_the_docstring():
    """Types, bounds, defaults and the docstring's words reach the model; the context does not."""
    assert search.spec() == ToolSpec(
        name="search",
        description="Search the code base, every file of it.",
        parameters={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What to look for, as a plain text.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 100,
                    "default": 10,
                    "description": "How many lines.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


class Pair(NamedTuple):
    """A place with a name."""

    place: Point
    name: str = ""


@tool
def join(pairs: list[Pair], ends: tuple[int, int], size: tuple[int | None, Point]) -> str:
    """Join points."""
    return f"{pairs} {ends} {size}"


@pytest.mark.parametrize("made_tool", [search, wait, plot, join], ids=lambda found: found.name)
@pytest.mark.parametrize(
    "draft", [jsonschema.Draft7Validator, jsonschema.Draft202012Validator], ids=["7", "2020-12"]
)
def test_schema_of_a_function_is_valid_in_both_drafts(draft, made_tool):
    """Providers know the one or the other, and refuse a request whose tool has a wrong one."""
    draft.check_schema(made_tool.parameters)

    assert "prefixItems" not in str(made_tool.parameters)


def test_a_tuple_is_described_item_by_item():
    """Both drafts say what each item may be, and a text says which is where."""
    assert plot.parameters["properties"]["pair"] == {
        "type": "array",
        "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "minItems": 2,
        "maxItems": 2,
        "default": (1, "a"),
        "description": "Its items, in this order: integer, string.",
    }
    ends = join.parameters["properties"]["ends"]
    assert ends == {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    size = join.parameters["properties"]["size"]
    assert size["description"] == "Its items, in this order: integer or null, Point."


def test_named_tuple_is_described_item_by_item():
    """With its default, which the model may leave out."""
    pair = join.parameters["definitions"]["Pair"]

    assert (pair["minItems"], pair["maxItems"]) == (1, 2)
    assert pair["description"].endswith("Its items, in this order: Point, string.")


def test_decorated_function_is_still_a_function():
    """A unit test calls the function as it was written, unchecked."""
    assert search("needle", limit=0, context=CALL) == "needle 0 call_1"


def test_checked_arguments_fit_the_function():
    """Arguments arrive as annotated, with defaults filled in, and the context is injected."""
    args = plot.check({"where": {"x": 3}})

    assert args == {"where": Point(3), "pair": (1, "a"), "tags": ["new"], "kind": "dot"}
    assert search.execute(search.check({"query": "needle"}), CALL) == "needle 10 call_1"


def test_default_is_fresh_for_every_call():
    """A tool that changes its default list changes it for this call alone."""
    plot.check({"where": {"x": 3}})["tags"].append("dirt")

    assert plot.check({"where": {"x": 3}})["tags"] == ["new"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Object missing required field `query`"),
        ({"query": "x", "limit": "3"}, "Expected `int`, got `str` - at `$.limit`"),
        ({"query": "x", "limit": 3.0}, "Expected `int`, got `float` - at `$.limit`"),
        ({"query": "x", "limit": 101}, "Expected `int` <= 100 - at `$.limit`"),
        ({"query": "x", "count": 1}, "Object contains unknown field `count`"),
        ({"query": "x", "context": {}}, "Object contains unknown field `context`"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_bad_arguments_are_reported_to_the_model(arguments, text):
    """The model reads what is wrong and where; nothing is guessed or converted."""
    with pytest.raises(ToolError) as caught:
        search.check(arguments)

    assert str(caught.value) == f"Invalid arguments for search: {text}"


def test_handwritten_schema_is_checked_too():
    """Every problem of a call is reported at once, with its place."""
    with pytest.raises(ToolError) as caught:
        Multiply().check({"a": "x", "b": 10})

    assert str(caught.value) == (
        "Invalid arguments for multiply: 'x' is not of type 'integer' - at `$.a`;"
        " 10 is greater than the maximum of 9 - at `$.b`"
    )


def test_problems_of_one_call_are_bounded():
    """A call with many mistakes does not fill the conversation with them."""
    properties = {f"a{number}": {"type": "integer"} for number in range(9)}
    odd = made(parameters={"type": "object", "properties": properties})
    with pytest.raises(ToolError) as caught:
        odd.check(dict.fromkeys(properties, "x" * 1000))

    assert len(str(caught.value)) < 2000
    assert str(caught.value).endswith("and 4 more")


def test_reference_out_of_a_schema_is_never_fetched():
    """A schema that points to the network makes an error result, not a request."""
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}
    with pytest.raises(ToolError, match=r"refers to .http://127"):
        made(parameters=schema).check({"a": 1})


def test_isolation_follows_the_function():
    """Plain code gets a process that can be killed, ``async def`` a task that can be cancelled."""
    found = [search.isolation, wait.isolation, Multiply.isolation, Later.isolation]

    assert found == ["process", "task", "process", "task"]
    assert asyncio.run(wait.execute(wait.check({"seconds": 2}), CALL)) == "waited 2.0"


@pytest.mark.parametrize("found", [made(isolation="thread"), made_later(isolation="process")])
def test_isolation_may_be_chosen(found):
    """A thread for plain code, a process for any."""
    assert as_tool(found) is found


def test_approval_is_needed_as_the_tool_says():
    """Never unless it is said; always; or as a function or a method finds."""

    class Careful(Multiply):
        """Asks for large numbers."""

        def needs_approval(self, args):
            """Decide."""
            return args["a"] > 1

    @tool(needs_approval=lambda args: args["seconds"] > 1)
    async def rest(seconds: float) -> str:
        """Rest."""
        return str(seconds)

    assert [made(needs_approval=answer).wants_approval({}) for answer in (True, False)] == [
        True,
        False,
    ]
    assert not Multiply().wants_approval({"a": 2})
    assert [as_tool(Careful).wants_approval({"a": a}) for a in (1, 2)] == [False, True]
    assert [rest.wants_approval({"seconds": s}) for s in (1, 2)] == [False, True]


def test_effects_are_write_unless_said():
    """Only who says so may be run again after a crash."""
    assert [search.effects, wait.effects, Multiply.effects] == ["read", "write", "write"]


def test_meta_and_description_fall_back_to_the_name():
    """A tool that says nothing about itself is known by its name."""
    bare = made(name="bare", description="")

    assert (bare.meta({}), bare.describe(ToolContext())) == ("bare", "bare")


def test_idempotency_key_names_the_call():
    """The same call has the same key in every incarnation."""
    assert CALL.idempotency_key == "s-1:call_1"


@pytest.mark.parametrize("candidate", [search, Multiply, Multiply(), "json:JSONDecoder"])
def test_every_form_of_a_tool_is_taken(candidate, monkeypatch):
    """A decorated function, a class, an instance and a name are all tools."""
    monkeypatch.setattr("json.JSONDecoder", Multiply)

    assert isinstance(as_tool(candidate), Tool)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (undecorated, "function 'undecorated' is no tool: decorate it with @cmdc.tool"),
        (3, "3 is no tool: give a function decorated"),
        ("nowhere", "'nowhere' is no tool: a tool by name is"),
        ("no_such_module:x", "tool 'no_such_module:x': No module named 'no_such_module'"),
        ("json:nothing", "has no attribute 'nothing'"),
        (Tool, "class 'Tool' has no execute: define it"),
        (made(name=""), "tool 'Odd': name must be 1 to 64 of A-Z a-z 0-9 _ -, got ''"),
        (made(name="a b"), "name must be 1 to 64"),
        (made(effects="none"), "effects must be one of"),
        (made(isolation="task"), "isolation must be one of ('process', 'thread') for this"),
        (made(isolation=None), "isolation must be one of ('process', 'thread') for this"),
        (made_later(isolation="thread"), "isolation must be one of ('task', 'process') for this"),
        (made(timeout=0), "timeout must be seconds above 0"),
        (made(max_retries=True), "max_retries must be"),
        (made(needs_approval="yes"), "needs_approval must be a bool or a function"),
        (made(parameters={"type": "array"}), 'JSON Schema with "type": "object"'),
        (made(parameters={"type": "object", "required": 3}), "no JSON Schema draft 7"),
    ],
)
def test_what_is_no_tool_is_refused(candidate, text):
    """The message names the object and what to change."""
    with pytest.raises(InvalidTool) as caught:
        as_tool(candidate)

    assert text in str(caught.value)


class Reading(NamedTuple):
    """Its default is no number."""

    value: float = math.nan


@dataclasses.dataclass
class Sample:
    """The same as a dataclass."""

    value: float = math.nan


class Bounds(msgspec.Struct, frozen=True):
    """The same in msgspec's words."""

    high: float = math.inf


class Range(pydantic.BaseModel):
    """The same in pydantic's words."""

    low: float = -math.inf


class Hinted(pydantic.BaseModel):
    """What it adds to its schema is no JSON."""

    low: float = pydantic.Field(json_schema_extra={"examples": [{"a": math.nan}]})


def taking(annotation, *default):
    """Return a function with one argument ``x``."""

    def f(x=None):
        """Take it."""
        return str(x)

    f.__annotations__ = {"x": annotation}
    f.__defaults__ = default or None
    return f


def meaning(**more):
    """Return the annotation of a float with something more in its schema."""
    return Annotated[float, msgspec.Meta(**more)]


X = "parameters['properties']['x']"
DEEP = {"type": "integer"}
for _ in range(DEPTH_MAX):
    DEEP = {"items": DEEP}
# fmt: off
UNSENDABLE = {
    "nan":              (taking(float, math.nan), f"{X}['default']: nan is"),
    "inf":              (taking(float, math.inf), f"{X}['default']: inf is"),
    "in a tuple":       (taking(tuple[float, ...], (math.inf,)), f"{X}['default'][0]: inf"),
    "beyond 64 bits":   (taking(int, 2**70), f"{X}['default']: it is an integer beyond 64"),
    "NamedTuple":       (taking(Reading), "['Reading']['items']['default']: nan is not"),
    "dataclass":        (taking(list[Sample]), "['Sample']['properties']['value']['default']"),
    "instance":         (taking(Bounds, Bounds(2.0)), "['Bounds']['properties']['high']"),
    "Struct":           (taking(Bounds | None), "['Bounds']['properties']['high']['default']"),
    "pydantic":         (taking(Range), "['low']['default']: -inf is not a finite number"),
    "pydantic's more":  (taking(Hinted), "['examples'][0]['a']: nan is not a finite number"),
    "examples":         (taking(meaning(examples=[1.0, math.nan])), f"{X}['examples'][1]: nan"),
    "description":      (taking(meaning(description="a\udc00")), f"{X}['description']: it is"),
    "Literal":          (taking(Literal["\ud800"]), "'x' has no JSON Schema: it is no valid"),
}
BY_HAND = {
    "default":          ({"default": math.nan}, f"{X}['default']: nan is not a finite number"),
    "const":            ({"const": -math.inf}, f"{X}['const']: -inf is not a finite number"),
    "enum":             ({"enum": ["\ud800"]}, f"{X}['enum'][0]: it is no valid UTF-8: half a"),
    "minimum":          ({"minimum": math.inf}, f"{X}['minimum']: inf is not a finite number"),
    "maximum":          ({"maximum": 2**70}, f"{X}['maximum']: it is an integer beyond"),
    "examples":         ({"examples": [[math.nan]]}, f"{X}['examples'][0][0]: nan is not a"),
    "set":              ({"enum": {1, 2}}, f"{X}['enum']: a set is no plain value"),
    "bytes":            ({"const": b"a"}, f"{X}['const']: a bytes is no plain value"),
    "key of no text":   ({1: {}}, f"{X}: a key is of type int, and only str can be kept"),
    "key of no UTF-8":  ({"\ud800": {}}, f"{X}: a key of it: it is no valid UTF-8"),
    "deep":             (DEEP, "parameters: it nests more than 64 levels deep; name its parts"),
    "pattern":          ({"pattern": "a{99999999999}"}, "draft 7: the repetition number is too"),
}
# fmt: on


@pytest.mark.parametrize(("function", "reported"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_a_function_whose_schema_is_no_json_is_no_tool(function, reported):
    """It is refused where it is decorated, by the tool, the field and the way out."""
    with pytest.raises(InvalidTool) as caught:
        tool(function)

    assert str(caught.value).startswith("tool 'f': ")
    assert reported in str(caught.value)


@pytest.mark.parametrize(("schema", "reported"), BY_HAND.values(), ids=BY_HAND)
def test_a_schema_written_by_hand_that_is_no_json_is_refused(schema, reported):
    """Wherever tools come in, since they all come in by ``as_tool``."""
    odd = made(parameters={"type": "object", "properties": {"x": schema}})

    with pytest.raises(InvalidTool) as caught:
        as_tool(odd)

    assert str(caught.value).startswith("tool 'multiply': parameters")
    assert reported in str(caught.value)


def test_the_way_out_of_an_unsendable_default_is_named():
    """And it is one."""
    with pytest.raises(InvalidTool, match="leave it out; a default can be None, which the code"):
        tool(taking(float, math.nan))

    assert tool(taking(float | None, None)).parameters["properties"]["x"]["default"] is None


def test_class_that_fails_is_named():
    """An error in the application's own constructor is its message, not a traceback."""

    class Broken(Multiply):
        """Needs what is not there."""

        def __init__(self):
            """Fail."""
            raise RuntimeError("no key")

    with pytest.raises(InvalidTool, match=r"Broken.*no key"):
        as_tool(Broken)


def test_parameters_that_no_model_can_give_are_refused():
    """A function that cannot become a tool says so when it is decorated."""

    def starred(*names: str) -> str:
        """Take any number."""
        return str(names)

    def odd(thing: object) -> str:
        """Take an object."""
        return str(thing)

    def unknown(thing: "Nothing") -> str:  # noqa: F821 - that is the point
        """Take what is not there."""
        return str(thing)

    for function, text in (
        (starred, "parameter \\*names"),
        (odd, "parameter 'thing' has no JSON Schema"),
        (unknown, "name 'Nothing' is not defined"),
    ):
        with pytest.raises(InvalidTool, match=text):
            tool(function)


def test_option_that_does_not_exist_is_refused():
    """A typo in the decorator is an error, not a tool with the default."""
    with pytest.raises(InvalidTool, match=r"takes no effect: do you mean effects\?$"):
        tool(effect="read")(undecorated)
    with pytest.raises(InvalidTool, match="takes no colour: it takes name, description"):
        tool(colour="red")(undecorated)


class Account:
    """What has methods."""

    def add(self, x: int) -> int:
        return x

    @classmethod
    def make(cls, x: int) -> int:
        return x

    def __call__(self, x: int) -> int:
        return x


CALLED = {
    "a class": Point,
    "a bound method": Account().add,
    "a method of a class": Account.make,
    "a partial": functools.partial(undecorated),
    "what is called": Account(),
}


@pytest.mark.parametrize("what", CALLED)
def test_only_functions_are_decorated(what):
    """A class is a tool by deriving from ``Tool``; the way out is the same wherever it is given."""
    way_out = "write a function that calls it, decorated with @cmdc.tool, or a cmdc.Tool class"
    with pytest.raises(InvalidTool, match=f"takes a function, got .*: {way_out}"):
        tool(CALLED[what])
    if what.endswith(("bound method", "of a class")):
        with pytest.raises(InvalidTool, match=f"method '.*' is no tool: {way_out}"):
            as_tool(CALLED[what])


def test_a_method_is_no_tool():
    """Nobody would fill its first parameter in, whatever its annotation."""
    with pytest.raises(InvalidTool, match=r"'self' is a method's: write a function outside"):
        tool(Account.add)


def test_loaded_tool_checks_as_before():
    """A tool that went through pickle has the same schema and the same checks."""
    again = pickle.loads(pickle.dumps(Multiply()))

    assert again.spec() == Multiply().spec()
