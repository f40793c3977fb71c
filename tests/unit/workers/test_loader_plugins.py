"""What was packed comes back as a checked plugin, or as one clear error."""

import pickle
import posixpath

import msgspec
import pytest

from cmdc_runtime import plugins, stores
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.packing import FUNCTION_KEY, Packed, pack_plugin
from workers import loader
from workers.builtin.plugins import cost_guard
from workers.loader import PLUGINS, LoadError, load_plugins


class Guard(Plugin):
    """A plugin that travels as code."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        denied: frozenset[str] = frozenset()

    def before_tool(self, event, context):
        """Let everything pass."""


def test_plugins_come_back_in_their_order():
    """A short name, a class by name with options, and code by value are plugins again."""
    things = [
        plugins.CostGuard(max_tokens=5),
        (Guard, {"denied": ["dd"]}),
    ]
    loaded = load_plugins([pack_plugin(thing, "") for thing in things])

    assert [plugin.name for plugin in loaded] == ["cost_guard", "guard"]
    assert loaded[0].config == plugins.CostGuard(max_tokens=5)
    assert loaded[1].config.denied == {"dd"}


def test_installed_class_gets_its_options():
    """A class that is named gets the options that travelled beside the name."""
    reference = f"{cost_guard.__name__}:CostGuard"
    [loaded] = load_plugins([pack_plugin((reference, {"max_cost_usd": 2.5}), "")])

    assert loaded.config.max_cost_usd == 2.5


def test_functions_come_back_from_within_options():
    """One in a Struct that is an option is a function again, as one that is an option is."""

    def embed(text):
        return [float(len(text)), 1.0]

    store = stores.Vector(path="memory.db", embed=embed, dimensions=2)
    given = plugins.EpisodicMemory(memory_store=store, judge_fn=lambda *_: True)
    [loaded] = load_plugins([pack_plugin(given, "")])

    assert loaded.config.memory_store.embed("four") == [4.0, 1.0]
    assert loaded.config.judge_fn() is True
    assert msgspec.structs.replace(loaded.config.memory_store, embed=embed) == store


def test_functions_come_back_however_deep_they_stand():
    """From dicts and lists; what only looks like one stays what it is."""
    packed = Packed(kind="ref", label="join", ref="posixpath:join")
    function = {FUNCTION_KEY: msgspec.structs.asdict(packed)}
    plain = {"text": "x", "numbers": [1, None, {}], "near": {FUNCTION_KEY: 1, "else": 2}}
    deep = {"rules": [{"when": function}, [function]]}

    assert loader._opened(deep, PLUGINS) == {"rules": [{"when": posixpath.join}, [posixpath.join]]}
    assert loader._opened(plain, PLUGINS) == plain


def test_every_session_has_plugins_of_its_own():
    """A class is made anew for each load."""
    packed = pack_plugin("cost_guard", "")

    assert load_plugins([packed])[0] is not load_plugins([packed])[0]


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (
            Packed(kind="ref", label="odd", ref="nothing"),
            "there is no built-in plugin",
        ),
        (
            Packed(kind="ref", label="odd", ref="read_file"),
            "there is no built-in plugin 'read_file', only ",
        ),
        (
            Packed(kind="ref", label="odd", ref="cost_guard", data=b"\x81\xa1x\x01"),
            "InvalidOptions: plugin 'cost_guard': there is no option 'x', only max_tokens,",
        ),
        (
            Packed(kind="ref", label="odd", ref="no_such_module:x"),
            "No module named 'no_such_module'; install it where the daemon runs",
        ),
        (
            Packed(kind="value", label="odd", data=pickle.dumps(7)),
            "InvalidOptions: 7 is no plugin",
        ),
        (
            Packed(kind="value", label="odd", data=b"", python=(3, 1)),
            "its code was packed by Python 3.1",
        ),
    ],
    ids=["no built-in", "a tool", "option", "module", "no plugin", "other Python"],
)
def test_whatever_goes_wrong_is_one_error(packed, message):
    """The error names the plugin and what is wrong."""
    with pytest.raises(LoadError) as caught:
        load_plugins([packed])

    assert str(caught.value).startswith(f"plugin 'odd' cannot be loaded: {message}")


def test_two_plugins_of_one_name_are_refused():
    """Their states could not be distinguished."""
    with pytest.raises(LoadError, match="another plugin is named 'guard' too"):
        load_plugins([pack_plugin(Guard, ""), pack_plugin((Guard, {"denied": ["dd"]}), "")])
