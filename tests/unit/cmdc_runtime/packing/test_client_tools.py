"""Tools that stay in the program: what travels of them, and how long they are found here."""

import gc
import os
from weakref import WeakValueDictionary

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions import Tool
from cmdc_runtime.packing import Packed, client_tools
from cmdc_runtime.packing.client_tools import are_known, pack, refuse_below, tools_of, without
from cmdc_runtime.subagent import CLIENT_TOOL

ANOTHER = Packed(kind="ref", label="shell", ref="shell")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Begin as a program that has made no such tool."""
    monkeypatch.setattr(client_tools, "_tools", WeakValueDictionary())
    monkeypatch.setattr(client_tools, "_unfetched", type(client_tools._unfetched)())


def made(name="order", **options):
    """Return a tool that stays here."""

    @cmdc.tool(where="client", name=name, **options)
    def order(item: str) -> str:
        """Order an item."""
        return item

    return order


def options_of(packed):
    """Return the options that travel."""
    return msgspec.msgpack.decode(packed.data)


def owner_of(packed):
    """Return the name that this process gave."""
    return options_of(packed)["owner"]


class Described(Tool):
    """A tool whose parameters are whatever was given."""

    name, where = "described", "client"

    def __init__(self, about):
        self.parameters = {"type": "object", "properties": {}, "description": about}

    def execute(self, args, context):
        """Do nothing."""
        return ""


def test_a_session_gets_what_its_model_sees():
    """By the built-in that calls this program."""
    tool = made(effects="read")
    packed = pack(tool)
    options = options_of(packed)

    assert (packed.kind, packed.label, packed.ref) == ("ref", "order", CLIENT_TOOL)
    assert options == {
        "owner": owner_of(packed),
        "seen": {
            "name": "order",
            "description": "Order an item.",
            "parameters": tool.parameters,
        },
        "effects": "read",
    }
    assert options["owner"].startswith("o-")


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {}),
        ({"timeout": 2.5}, {"timeout": 2.5}),
        ({"needs_approval": True}, {"needs_approval": True}),
        ({"needs_approval": False}, {}),
    ],
)
def test_what_was_not_said_is_not_sent(options, more):
    """So that the session's own default holds."""
    sent = options_of(pack(made(**options)))

    assert {name: sent[name] for name in sent.keys() - {"owner", "seen", "effects"}} == more


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        (float("nan"), "nan is not a finite number"),
        ("\ud800", "it is no valid UTF-8: half a surrogate pair (U+D800) at 0"),
    ],
    ids=["a number", "text"],
)
def test_what_cannot_travel_is_refused_with_its_place(about, problem):
    """By the tool's name."""
    with pytest.raises(InvalidTool) as caught:
        pack(Described(about))

    place = "tool 'described' cannot travel: ['seen']['parameters']['description']: "
    assert str(caught.value) == f"{place}{problem}"


def test_a_tool_keeps_its_name():
    """However often it is attached; another one has another."""
    tool, other = made(), made()

    assert owner_of(pack(tool)) == owner_of(pack(tool))
    assert owner_of(pack(tool)) != owner_of(pack(other))


def test_a_fork_gives_names_of_its_own(monkeypatch):
    """It has the memory of the other and another pid: each answers for its own tools."""
    tool = made()
    before = owner_of(pack(tool))
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", os.getppid)
        another = owner_of(pack(tool))
        assert owner_of(pack(tool)) == another

    assert another.startswith("o-")
    assert another != before


def test_the_first_process_of_a_container_gives_names_too(monkeypatch):
    """Its pid is 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)

    assert owner_of(pack(made())).startswith("o-")


def test_tools_are_found_among_what_travels():
    """By their names as owners; what is no such tool, or another process's, is passed over."""
    tool, other = made(), made("other")
    packed, unasked = pack(tool), pack(other)
    elsewhere = options_of(packed) | {"owner": "o-elsewhere"}
    found = tools_of(
        [
            ANOTHER,
            Packed(kind="ref", label="mine", ref="mine:tool", data=unasked.data),
            Packed(kind="ref", label="bare", ref=CLIENT_TOOL),
            Packed(
                kind="ref", label="far", ref=CLIENT_TOOL, data=msgspec.msgpack.encode(elsewhere)
            ),
            packed,
        ]
    )

    assert found == {owner_of(packed): tool}
    assert tools_of([ANOTHER]) == {}


def test_a_tool_is_kept_until_it_is_fetched_and_then_by_who_holds_it():
    """Nobody else need hold it before its session is there."""
    assert not are_known()
    packed = pack(made())
    gc.collect()
    assert are_known()

    held = tools_of([packed])
    assert list(held) == [owner_of(packed)]
    gc.collect()
    assert tools_of([packed]) == held

    del held
    gc.collect()
    assert tools_of([packed]) == {}
    assert are_known() is False


def test_only_so_many_are_kept_that_nobody_fetches(monkeypatch):
    """Those of starts that were refused: the oldest go."""
    monkeypatch.setattr(client_tools, "UNFETCHED_MAX", 2)
    all_packed = [pack(made(name)) for name in ("first", "second", "third")]
    gc.collect()

    assert [tool.name for tool in tools_of(all_packed).values()] == ["second", "third"]


def test_a_subagent_gets_none():
    """With what to do in its place."""
    with pytest.raises(InvalidOptions) as caught:
        refuse_below(pack(made()), "subagents[0].tools[1]")

    assert list(caught.value.problems) == [
        "subagents[0].tools[1]: 'order' has where=\"client\": give it to the session itself"
    ]
    refuse_below(ANOTHER, "subagents[0].tools[1]")


def test_another_session_may_have_the_others():
    """In their order."""
    last = Packed(kind="ref", label="last", ref="mine:last")

    assert without([ANOTHER, pack(made()), last]) == (ANOTHER, last)
    assert without([]) == ()
