"""Our tree: who is where, and that its specifications are sound."""

import msgspec
import pytest

from cmdc_runtime.errors import InvalidOptions, TransientError
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.process import CODE_STAGE, FRAME_STAGE
from cmdc_runtime.reasons import StartFailed
from cmdc_runtime.requests import SessionPhase, StartSession, Supervision
from supervisor.core import session_tree
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import (
    check_parent,
    check_session,
    root_spec,
    server_spec,
    session_path,
    session_spec,
)
from supervisor.core.tree.messages import Begin
from supervisor.core.tree.specs import AutoShutdown, Strategy, SupervisorSpec, spec_problems
from supervisor.core.tree.tree import Tree


def request(**more):
    supervision = Supervision(**more.pop("supervision", {}))
    return StartSession(
        session_id="a",
        supervision=supervision,
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        **more,
    )


def session(**more):
    numbers = {"incarnation": more.pop("incarnation", 0), "restarts": more.pop("restarts", 0)}
    return session_spec(request(**more), "handler", **numbers)


def test_every_phase_is_shown_as_one_that_clients_know():
    """The table is total, and says nothing that is not on the wire."""
    assert set(session_tree.SHOWN) == set(Phase)
    assert set(session_tree.SHOWN.values()) <= set(SessionPhase.__args__)
    assert set(session_tree.SHOWN) >= session_tree.HAVING_CHILDREN


def test_only_other_code_and_unreadable_frames_park_a_session():
    """A start that failed for anything else is an end."""
    stages = (CODE_STAGE, FRAME_STAGE, "load", "rebuild")
    failed = [StartFailed(stage=stage, message="") for stage in stages]

    assert [session_tree.parks(one) for one in (*failed, None)] == [True, True, False, False, False]


def test_root_is_sound_and_up_without_its_zygote():
    """Sessions can be asked for while the zygote is being warmed."""
    assert spec_problems(root_spec("nursery")) == []
    tree = Tree(root_spec("nursery"))
    tree.handle(Begin(), 0.0)

    states = {view.id: view.state for view in tree.which_children()}
    assert states == {"nursery": "starting", "mcp_servers": "up", "sessions": "up"}


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_session_is_sound_and_ends_with_its_agent_where_that_stays_down(restart):
    """A permanent agent comes back from every end, so nothing of it is significant."""
    spec = session(supervision={"restart": restart})
    agent, subagents = spec.start.children

    assert spec_problems(spec.start) == []
    assert spec.restart == "temporary"
    assert spec.start.flags.strategy is Strategy.REST_FOR_ONE
    assert agent.significant is (restart != "permanent")
    assert (spec.start.flags.auto_shutdown is AutoShutdown.NEVER) is (restart == "permanent")
    assert subagents.start.flags.stop_reason == session_tree.PARENT_ENDED


def test_session_of_an_earlier_daemon_goes_on_with_its_numbers():
    """Its first start here is a restart: one that fails is tried again."""
    spec = session(incarnation=4, restarts=3)
    agent = spec.start.children[0]

    assert spec.start.flags.resumes
    assert (agent.generation, agent.restarts) == (4, 3)
    assert session(incarnation=1).start.flags.resumes
    assert not session().start.flags.resumes


@pytest.mark.parametrize(
    ("shutdown", "is_child", "grace"),
    [(5.0, False, 5.0), (None, False, None), (None, True, 10.0), (60.0, True, 10.0)],
)
def test_child_may_not_hold_up_its_parent(shutdown, is_child, grace):
    """Its own grace counts, but not for ever."""
    parent = {"parent_id": "p"} if is_child else {}

    assert session(supervision={"shutdown": shutdown}, **parent).shutdown == grace


def test_child_is_below_its_parent():
    """The path is what ``cmdc tree`` shows."""
    parent = session_path(None, "p")

    assert parent == ("sessions", "session:p")
    assert session_path(parent, "c") == (*parent, "subagents", "session:c")
    assert session(parent_id="p").id == session().id == "session:a"


def test_child_is_taken_from_its_parents_own_process_alone():
    """One that was replaced since it asked would get a child that the next knows nothing of."""
    check_parent("p", Phase.UP, 3, asks=3)

    for phase, asks in [(Phase.UP, 2), (Phase.UP, 4), (Phase.RESTARTING, 3), (Phase.ENDED, 2)]:
        with pytest.raises(
            TransientError, match=f"p is {session_tree.SHOWN[phase]} as incarnation 3"
        ):
            check_parent("p", phase, 3, asks)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"supervision": {"max_restarts": -1}}, "max_restarts"),
        ({"supervision": {"max_seconds": float("nan")}}, "max_seconds"),
        ({"supervision": {"shutdown": -1.0}}, "shutdown"),
        ({"supervision": {"start_timeout": float("inf")}}, "start_timeout"),
        ({"supervision": {"restart_delay": (float("inf"), 1.0)}}, "restart_delay"),
        ({"session_id": "_supervisor"}, "session_id"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": "../" * 100}, "session_id"),
    ],
)
def test_what_no_session_can_be_kept_by_is_refused(given, named):
    """From a client that is not ours or an old journal it must not get to the tree."""
    supervision = Supervision(**given.get("supervision", {}))
    session_id = given.get("session_id", "a")
    wrong = msgspec.structs.replace(request(), session_id=session_id, supervision=supervision)

    with pytest.raises(InvalidOptions, match=named):
        check_session(wrong)


def test_what_options_allow_is_kept():
    """The least and the most of each are sound here too."""
    least = Supervision(
        max_restarts=0,
        max_seconds=0.001,
        restart_delay=(0.0, 0.0),
        shutdown=None,
        start_timeout=0.001,
        unresponsive_after=0.5,
    )
    check_session(msgspec.structs.replace(request(), supervision=least))
    check_session(request(parent_id="p"))


# fmt: off
FAMILIES = {
    "nobody":              ({},                                          ""),
    "its own parent":      ({"a": "a"},                                  "a"),
    "two":                 ({"a": "b", "b": "a"},                        "ab"),
    "three, and another":  ({"a": "b", "b": "c", "c": "a", "d": "x"},    "abc"),
    "below a ring":        ({"e": "d", "d": "a", "a": "b", "b": "a"},    "ab"),
    "two rings":           ({"a": "a", "b": "c", "c": "b", "d": "b"},    "abc"),
    "a long line":         ({"a": "b", "b": "c", "c": "d"},              ""),
    "of one parent":       ({"a": "c", "b": "c", "c": "d"},              ""),
}
# fmt: on


@pytest.mark.parametrize(("parents", "rings"), FAMILIES.values(), ids=FAMILIES)
def test_who_is_above_itself_is_found(parents, rings):
    """And nobody who is only below such a one, in whatever order they are looked at."""
    backwards = dict(reversed(parents.items()))

    assert session_tree.own_ancestors(parents) == frozenset(rings)
    assert session_tree.own_ancestors(backwards) == frozenset(rings)


def test_a_shared_server_ends_with_its_host_and_has_a_budget_of_its_own():
    """Its name is no session's, so nothing of a session is taken for its own."""
    spec = server_spec("0123456789abcdef" * 2, "handler")

    assert spec_problems(root_spec("nursery")) == []
    assert spec_problems(SupervisorSpec(children=(spec,))) == []
    assert spec.start.flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT
    assert [(one.restart, one.significant) for one in spec.start.children] == [("transient", True)]
    assert not is_session_id(spec.id)
