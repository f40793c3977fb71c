"""Which lines of a recording go with whom: each story is a session's, with all below it."""

import pytest

from cmdc_runtime.reasons import Signal
from supervisor.core.tree.messages import (
    Begin,
    ChildExited,
    Ending,
    KillSupervisor,
    Ref,
    StartChild,
    TerminateChild,
    Up,
)
from supervisor.core.tree.recording import (
    VERSION,
    RecordedInput,
    RecordedTree,
    RecordingHead,
    read,
    replay,
)
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec

KILLED = Signal(number=9, name="SIGKILL")
SESSIONS = ("sessions",)
BELOW = ("sessions", "one", "below")


def supervisor(name, spec, restart="permanent"):
    return ChildSpec(id=name, start=spec, restart=restart, shutdown=None)


def dynamic(max_children=None):
    return SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC, max_children=max_children))


def session(name, *agents):
    """Return a session: its agents, and a place for others that has no room."""
    workers = (ChildSpec(id=agent, start="agent") for agent in agents)
    children = (*workers, supervisor("below", dynamic(0)))
    return supervisor(name, SupervisorSpec(children=children), "temporary")


def lived(*sessions):
    """Return a tree with these sessions, each of which is up."""
    tree = RecordedTree(SupervisorSpec(children=(supervisor("sessions", dynamic(len(sessions))),)))
    tree.handle(Begin(), 0.0)
    for spec in sessions:
        tree.handle(StartChild(SESSIONS, spec, object()), 1.0)
        for one in spec.start.children[:-1]:
            tree.handle(Up(Ref((*SESSIONS, spec.id), one.id, 1)), 1.0)
    return tree


def lines(tree):
    return list(tree.recorder.lines())


def is_played_as_it_was(tree):
    return all(one.is_same for one in replay(lines(tree)))


@pytest.mark.parametrize("path", [SESSIONS, BELOW])
def test_a_start_that_was_refused_leaves_nothing(path):
    """Neither a line nor its number in the story that it is a part of."""
    tree = lived(session("one", "agent"))
    before = lines(tree)
    stories = {place: list(story) for place, story in tree.recorder._stories.items()}
    for _ in range(3):
        tree.handle(StartChild(path, ChildSpec(id="more", start="x"), object()), 2.0)

    assert lines(tree) == before
    assert {place: list(story) for place, story in tree.recorder._stories.items()} == stories


def test_a_root_of_passing_children_forgets_them():
    """A story may begin right below the root."""
    tree = RecordedTree(dynamic())
    tree.handle(Begin(), 0.0)
    before = lines(tree)
    tree.handle(StartChild((), session("one", "agent"), object()), 1.0)
    tree.handle(Up(Ref(("one",), "agent", 1)), 1.0)
    tree.handle(TerminateChild((), "one", object()), 2.0)
    tree.handle(ChildExited(Ref(("one",), "agent", 1), KILLED, Ending.CRASH), 3.0)

    assert lines(tree) == before


@pytest.mark.parametrize("agents", [(), ("agent",)], ids=["at once", "one after the other"])
def test_who_ends_with_a_supervisor_that_comes_back_is_not_forgotten(agents):
    """What it did when it was killed depends on who was there."""
    tree = lived(session("one", *agents), session("two", *agents))
    count = len(lines(tree))
    tree.handle(KillSupervisor(SESSIONS), 2.0)
    for name in ("one", "two") if agents else ():
        tree.handle(ChildExited(Ref((*SESSIONS, name), "agent", 1), KILLED, Ending.CRASH), 3.0)

    assert tree.child((), "sessions").generation == 2
    assert len(lines(tree)) == count + 1 + 2 * len(agents)
    assert is_played_as_it_was(tree)


def test_a_head_that_names_no_lines_that_are_missing_misses_none():
    """As one of a tree that has kept all of it."""
    head, rest = read([b'{"version":2,"spec":{}}'])

    assert (head.dropped, head.note, rest) == (0, "", [])


def test_what_was_recorded_cannot_be_changed():
    """And a head is written by the names of its fields, since two of them are numbers."""
    assert all(kind.__struct_config__.frozen for kind in (RecordingHead, RecordedInput))
    with pytest.raises(TypeError):
        RecordingHead(VERSION, dynamic())
