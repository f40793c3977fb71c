"""Functions and strategies among options, and what is said of things that can't be looked at."""

import json
import sys
import threading
from collections.abc import Mapping

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import plugins, reasoning, sandbox, tools
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions import Tool
from cmdc_runtime.packing import (
    PACKED_BYTES_MAX,
    Packed,
    pack,
    pack_function,
    pack_plugin,
    pack_sandbox,
    pack_strategy,
    packer,
)
from cmdc_runtime.packing.packer import BuiltInPlugin, brings_code, packed_in, strategy_option
from cmdc_runtime.plain import short
from cmdc_runtime.subagent import CLIENT_TOOL

LOCK = threading.Lock()


def score(text, question):
    """Score in a test module, which no worker can import."""
    return len(text)


def locked(text, question):
    """Use what cannot travel."""
    return LOCK


class Unreadable:
    """Fails where its name is looked at."""

    @property
    def name(self):
        """Fail."""
        raise ZeroDivisionError("a bug of mine")

    __name__ = name


class UnreadableTool(Unreadable, Tool):
    """A tool that does."""

    def execute(self, args, context):
        """Do nothing."""


class UnreadableOptions(Mapping):
    """Options that do."""

    def __getitem__(self, key=None):
        """Fail."""
        raise ZeroDivisionError("a bug of mine")

    __iter__ = __len__ = __getitem__


class Loose(BuiltInPlugin, frozen=True, kw_only=True, omit_defaults=True):
    """A reference with an option of any kind."""

    short_name = "loose"
    extra: object = None


def options_of(packed):
    """Return the options beside a reference."""
    return msgspec.msgpack.decode(packed.data)


@pytest.mark.parametrize(
    ("packs", "error", "make"),
    [
        (pack, InvalidTool, UnreadableTool),
        (pack_plugin, InvalidOptions, lambda: (plugins.CostGuard, UnreadableOptions())),
        (pack_strategy, InvalidOptions, lambda: (reasoning.StepBack, UnreadableOptions())),
        (pack_function, InvalidOptions, Unreadable),
    ],
)
def test_a_thing_that_cannot_be_looked_at_is_refused(packs, error, make):
    """With its place, and what its own code said."""
    thing = make()
    with pytest.raises(error) as caught:
        packs(thing, "things[3]")

    assert str(caught.value).startswith(f"things[3]: {short(thing)} can't be looked at: ")
    assert "a bug of mine" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "packed"),
    [
        ("my.lib:score", Packed(kind="ref", label="my.lib:score", ref="my.lib:score")),
        (json.dumps, Packed(kind="ref", label="dumps", ref="json:dumps")),
    ],
)
def test_a_function_that_can_be_imported_travels_by_name(function, packed):
    """Also where only its name was given, which is not looked up here."""
    assert pack_function(function, "") == packed


def test_a_function_of_a_script_travels_by_value():
    """For the Python that its byte code is of."""
    packed = pack_function(score, "")

    assert (packed.kind, packed.label, packed.python) == ("value", "score", sys.version_info[:2])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("a b", "score: 'a b' is no function: give \"module:name\""),
        (locked, "score: function 'locked' cannot travel, because of global 'LOCK'"),
    ],
)
def test_a_function_that_cannot_travel_is_refused(function, problem):
    """With the place where it was given."""
    with pytest.raises(InvalidOptions) as caught:
        pack_function(function, "score")

    (reported,) = caught.value.problems
    assert reported.startswith(problem)


TREE = reasoning.TreeOfThoughts(score=score)
NAMED = reasoning.TreeOfThoughts(score=json.dumps)


def test_strategies_travel_as_plugins_do():
    """By name with options, or among the options of a built-in."""
    packed = pack_strategy(reasoning.SelfConsistency(samples=5), "")
    option = strategy_option("step_back", "")

    assert (packed.kind, packed.ref) == ("ref", "self_consistency")
    assert options_of(packed) == {"samples": 5}
    assert msgspec.convert(option["$strategy"], Packed) == pack_strategy("step_back", "")
    assert list(option) == ["$strategy"]


def test_functions_are_packed_among_the_options():
    """By name where any process finds it, else as code."""
    by_value, by_name = pack_strategy(TREE, ""), pack_strategy(NAMED, "")
    (code,), (name,) = packed_in(by_value), packed_in(by_name)

    assert (code.kind, code.label) == ("value", "score")
    assert (name.kind, name.ref) == ("ref", "json:dumps")
    assert list(options_of(by_name)["score"]) == ["$function"]


HELD = {"$function": msgspec.to_builtins(Packed(kind="ref", label="x", ref="m:x"))}


@pytest.mark.parametrize(
    ("options", "refs"),
    [
        ({"a": HELD}, ["m:x"]),
        ({"a": [1, {"b": HELD, "c": "m:y"}, HELD]}, ["m:x", "m:x"]),
        ({"a": {"$function": "not packed"}, "b": HELD}, ["m:x"]),
        ({"a": {"$function": HELD["$function"], "more": 1}}, []),
        ({"a": {"other": HELD["$function"]}}, []),
        ({"a": {"other": HELD}}, ["m:x"]),
        ({"a": [], "b": {}, "c": None}, []),
    ],
    ids=["one", "within lists", "alike", "a key more", "another key", "within", "none"],
)
def test_packed_code_is_found_wherever_it_is(options, refs):
    """An option of somebody's own that is named like ours is none."""
    packed = Packed(kind="ref", label="x", ref="x", data=msgspec.msgpack.encode(options))

    assert [one.ref for one in packed_in(packed)] == refs


@pytest.mark.parametrize(
    ("packed", "brings"),
    [
        (pack_function(score, ""), True),
        (pack_function("m:x", ""), False),
        (pack_strategy(TREE, ""), True),
        (pack_strategy(NAMED, ""), False),
        (pack_strategy("step_back", ""), False),
        (
            Packed(
                kind="ref",
                label="x",
                ref="x",
                data=msgspec.msgpack.encode(
                    [HELD, strategy_option(TREE, ""), strategy_option("step_back", "")]
                ),
            ),
            True,
        ),
    ],
    ids=["code", "a name", "code within", "a name within", "no options", "code deep within"],
)
def test_code_is_brought_by_packed_code_or_by_what_is_within_it(packed, brings):
    """A worker asks before it loads what could be of another version."""
    assert brings_code(packed) is brings


def test_code_by_value_is_not_looked_into():
    """Its bytes are a pickle."""
    assert list(packed_in(pack_function(score, ""))) == []


def test_an_option_that_is_neither_data_nor_a_function_is_refused():
    """With its type."""
    with pytest.raises(InvalidOptions, match="lock is no option: <a lock>"):
        pack_plugin(Loose(extra=LOCK), "plugins[0]")


def test_an_option_within_an_option_is_refused_with_all_that_is_wrong():
    """What a built-in says of itself where it travels stands in one line."""

    class Refusing(Loose, frozen=True, kw_only=True):
        def to_options(self):
            raise InvalidOptions(["one", "two"])

    with pytest.raises(InvalidOptions) as caught:
        pack_plugin(Refusing(), "plugins[0]")

    assert list(caught.value.problems) == ["plugins[0]: one; two"]


def test_code_may_be_as_long_as_its_bound(monkeypatch):
    """And not longer."""
    size = len(pack_function(score, "").data)
    assert size < PACKED_BYTES_MAX

    monkeypatch.setattr(packer, "PACKED_BYTES_MAX", size)
    assert pack_function(score, "").kind == "value"
    monkeypatch.setattr(packer, "PACKED_BYTES_MAX", size - 1)
    with pytest.raises(InvalidOptions, match=f"function 'score' takes {size:,} bytes"):
        pack_function(score, "")


def test_options_that_are_left_out_are_not_sent():
    """So that the defaults of who gets them hold."""
    assert pack(tools.Shell(), "").data is None
    assert pack_plugin(plugins.CostGuard(), "").data is None
    assert pack_sandbox(sandbox.Local(), "").data is None


def test_options_are_given_by_name():
    """The first that was given by its place is named."""
    with pytest.raises(InvalidOptions, match=r"'cost_guard'.* by name, not 3"):
        plugins.CostGuard(3)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("shel", "did you mean shell?"), ("qqqqqqqqqq", "only ")],
)
def test_a_short_name_that_is_none_is_refused_at_once(name, hint):
    """With the way out; what ``module:name`` names may be where the daemon runs."""
    with pytest.raises(InvalidTool, match=rf"there is no built-in tool '{name}', {hint}"):
        pack(name, "tools[0]")

    assert pack("no_such_module:tool", "tools[0]").ref == "no_such_module:tool"


def test_a_name_for_the_base_of_others_is_not_offered():
    """It is known, but hardly meant."""
    with pytest.raises(InvalidOptions) as caught:
        pack_strategy("qqqqqqqqqq", "strategies[0]")

    offered = str(caught.value).partition(", only ")[2].split(", ")
    assert "chain_of_thought" in offered
    assert "chain" not in offered


@pytest.mark.parametrize(
    ("name", "hint"), [("Cost Guard", "; did you mean cost_guard?"), ("qq qq", "")]
)
def test_what_is_no_name_may_be_near_to_one(name, hint):
    """As that of its class; where nothing is near, nothing is guessed."""
    with pytest.raises(InvalidOptions) as caught:
        pack_plugin(name, "plugins[0]")

    assert str(caught.value).endswith(f"or the short name of a built-in plugin{hint}")


def test_a_short_name_brings_no_options():
    """Those of who loads it hold; a class by its module brings what an instance of it does."""
    bare = pack_plugin(plugins.ContentPolicy(), "")

    assert bare.data is not None
    assert pack_plugin("content_policy", "").data is None
    assert pack_plugin("cmdc_runtime.plugins:ContentPolicy", "") == bare


def test_an_option_that_cannot_be_kept_is_named():
    """Though the wire takes it."""
    with pytest.raises(InvalidOptions, match=r"options of 'mine:Guard'\['limit'\]: .*nan"):
        pack_plugin(("mine:Guard", {"limit": float("nan")}), "plugins[0]")


def test_a_built_in_that_cannot_be_without_options_is_refused_by_its_name_alone():
    """So that it does not fail where it is loaded."""
    with pytest.raises(InvalidOptions, match=r"strategies\[0\]: strategy 'chain': templates: give"):
        pack_strategy("chain", "strategies[0]")


def test_a_sandbox_travels_by_name_with_its_options():
    """As plugins do."""
    packed = pack_sandbox(sandbox.Local(root="project"), "")

    assert (packed.kind, packed.label, packed.ref) == ("ref", "local", "local")
    assert options_of(packed) == {"root": "project"}
    assert pack_sandbox("local", "") == Packed(kind="ref", label="local", ref="local")


def test_a_wrong_name_of_a_sandbox_is_refused():
    """With the nearest of ours."""
    with pytest.raises(InvalidOptions) as caught:
        pack_sandbox("bubblwrap", "sandbox")

    assert list(caught.value.problems) == [
        "sandbox: there is no built-in sandbox 'bubblwrap', did you mean bubblewrap?"
    ]


def test_a_tool_of_the_program_stays_there():
    """Another one travels, as code here."""

    def greet(name: str) -> str:
        return name

    there, here = (pack(cmdc.tool(where=where)(greet), "") for where in ("agent", "client"))

    assert (here.kind, here.label, here.ref) == ("ref", "greet", CLIENT_TOOL)
    assert (there.kind, there.label, there.ref) == ("value", "greet", None)


def test_a_tool_that_travels_as_code_is_looked_into():
    """What it changes of this program would be lost."""
    seen = []

    @cmdc.tool
    def note(text: str) -> str:
        seen.append(text)
        return text

    with pytest.warns(cmdc.CapturedStateWarning, match="tool 'note' changes 'seen', a list"):
        packed = pack(note, "")

    assert (packed.kind, packed.label) == ("value", "note")
