"""The life of an MCP server as a value, and the names of its tools."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core import mcp
from workers.core.mcp import ServerLife, ServerState

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CONNECTING = ServerLife(ServerState.CONNECTING, since_s=10.0)


def lost_at(*times, life=CONNECTING):
    for at_s in times:
        life = mcp.restarted(mcp.lost(life, at_s, "gone"))
    return life


# --- lives ----------------------------------------------------------------------------------------


def test_a_server_is_started_when_it_is_needed():
    """It is declared until then, and requests wait for it from there on."""
    life = mcp.wanted(ServerLife(), 10.0)

    assert life == CONNECTING
    assert mcp.due_s(ServerLife(), 5.0) is None
    assert mcp.due_s(life, 5.0) == 15.0


@pytest.mark.parametrize("state", ["connecting", "ready", "restarting"])
def test_a_server_that_is_started_is_not_started_twice(state):
    """Whatever needs it meanwhile changes nothing."""
    life = ServerLife(ServerState(state), since_s=10.0)

    assert mcp.wanted(life, 11.0) is life


def test_nobody_waits_for_one_that_is_ready_or_failed():
    """Its state is known."""
    ready = mcp.ready(CONNECTING)
    failed = mcp.lost(CONNECTING, 11.0, "no", is_final=True)

    assert (ready.state, mcp.due_s(ready, 5.0)) == ("ready", None)
    assert (failed.state, mcp.due_s(failed, 5.0)) == ("failed", None)


def test_a_server_that_is_lost_is_started_again_after_growing_delays():
    """The fourth loss within the window is the last."""
    lives = [mcp.lost(lost_at(*range(20, 20 + n)), 30.0, "gone") for n in range(4)]

    assert [life.state for life in lives] == ["restarting"] * 3 + ["failed"]
    assert [mcp.delay_s(life) for life in lives[:3]] == [0.2, 1.0, 4.0]
    assert lives[0].problem == "gone"


def test_losses_are_forgotten_behind_the_window():
    """One that is lost now and then is started again each time."""
    life = lost_at(*(100.0 * n for n in range(1, 10)))

    assert mcp.lost(life, 1000.0, "gone").state == "restarting"


def test_waits_for_one_that_was_ready_begin_with_its_loss():
    """While it never was, they have begun with its first start."""
    begun = mcp.lost(CONNECTING, 12.0, "gone")
    fallen = mcp.lost(mcp.ready(CONNECTING), 12.0, "gone")

    assert (mcp.due_s(begun, 5.0), mcp.due_s(fallen, 5.0)) == (15.0, 17.0)


def test_a_server_that_has_failed_is_tried_again_behind_the_window():
    """A request before that goes without it."""
    failed = mcp.lost(CONNECTING, 20.0, "gone", is_final=True)

    assert mcp.wanted(failed, 79.0) is failed
    assert mcp.wanted(failed, 80.0) == ServerLife(ServerState.CONNECTING, since_s=80.0)


# --- names ----------------------------------------------------------------------------------------


def test_a_name_is_made_of_server_and_tool():
    """What models do not take in a name becomes an underscore."""
    assert mcp.tool_name("files", "read") == "mcp__files__read"
    assert mcp.tool_name("files", "read.all/ü") == "mcp__files__read_all__"


@given(st.from_regex(r"\A[A-Za-z0-9_-]{1,32}\Z"), st.text(max_size=200))
def test_every_name_is_one_that_models_take(server, tool):
    """Whatever a server calls its tool."""
    assert NAME.fullmatch(mcp.tool_name(server, tool))


def test_long_names_with_one_beginning_differ():
    """A digest keeps them apart."""
    one, two = (mcp.tool_name("files", "x" * 100 + end) for end in "ab")

    assert one != two
    assert len(one) == len(two) == 64


def test_a_name_that_just_fits_is_left_as_it_is():
    """With one character more, its end is a digest."""
    fits = "x" * (64 - len("mcp__files__"))

    assert mcp.tool_name("files", fits) == f"mcp__files__{fits}"
    assert not mcp.tool_name("files", f"{fits}x").endswith("x" * 9)


def test_tools_that_would_be_called_alike_are_left_out():
    """Each is named with the other, whichever server they are of."""
    listed = [("a", "b.c"), ("a", "b_c"), ("a", "d"), ("a__b", "e"), ("a", "b__e")]
    names = mcp.named(listed, frozenset())

    assert dict(names.given) == {("a", "d"): "mcp__a__d"}
    assert names.problems["a"][0] == (
        "tool 'b.c' is left out: 'b_c' of 'a' would be called mcp__a__b_c too"
    )
    assert "'b__e' of 'a'" in names.problems["a__b"][0]


def test_two_tools_of_one_name_in_one_list_are_left_out():
    """Which one is meant would depend on their order; each problem is said once."""
    names = mcp.named([("a", "b"), ("a", "c"), ("a", "b"), ("a", "b")], frozenset())

    assert dict(names.given) == {("a", "c"): "mcp__a__c"}
    assert names.problems == {
        "a": ("tool 'b' is left out: another one of this name would be called mcp__a__b too",)
    }


def test_a_tool_that_stands_twice_and_has_a_namesake_names_both():
    """The other one of its own name comes first, however few there are."""
    listed = [("a", "b.c"), ("a", "b_c"), ("a", "b.c")]
    names = mcp.named(listed, frozenset())

    assert dict(names.given) == {}
    twice, once = names.problems["a"]
    assert "'b.c' is left out: another one of this name, 'b_c' of 'a' would be called" in twice
    assert once == "tool 'b_c' is left out: 'b.c' of 'a' would be called mcp__a__b_c too"


def test_a_tool_of_the_session_keeps_its_name():
    """The server's is left out."""
    names = mcp.named([("a", "b")], {"mcp__a__b"})

    assert dict(names.given) == {}
    assert "a tool of the session" in names.problems["a"][0]
