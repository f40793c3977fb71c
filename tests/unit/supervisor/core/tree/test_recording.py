"""The inputs of a tree can be played again, and a record is bounded."""

import json
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import get_args

import msgspec
import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.reasons import Exception as Raised
from cmdc_runtime.reasons import Signal
from scripts.simulate.fates import TEMPERS, deck
from scripts.simulate.incident import shown
from scripts.simulate.scenes import stock
from scripts.simulate.schedule import Schedule
from supervisor.core.tree.messages import (
    AnyInput,
    Begin,
    ChildExited,
    DeleteChild,
    Due,
    Effect,
    Ending,
    Fail,
    HibernateChild,
    Ignored,
    Input,
    KillSupervisor,
    Launch,
    Reconfigure,
    Ref,
    RestartChild,
    StartChild,
    Stop,
    TerminateChild,
    Timer,
    TimerKind,
    Up,
    WakeChild,
)
from supervisor.core.tree.recording import (
    LETTERS,
    RAISED,
    RecordedInput,
    RecordedTree,
    Recorder,
    read,
    replay,
)
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec
from supervisor.core.tree.tree import Tree

INCIDENTS = sorted((Path(__file__).parents[4] / "incidents").glob("*.jsonl"))
KILLED = Signal(number=9, name="SIGKILL")
LIVES = 100
SESSION = SupervisorSpec(
    flags=Flags(strategy=Strategy.REST_FOR_ONE),
    children=(
        ChildSpec(id="agent", start="agent", restart="permanent"),
        ChildSpec(id="below", start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC))),
    ),
)
ROOT = SupervisorSpec(
    children=(
        ChildSpec(
            id="sessions",
            start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)),
            shutdown=None,
        ),
    )
)
SPEC = ChildSpec(id="one", start=SESSION, restart="temporary", shutdown=None)
REF = Ref(("sessions", "one"), "agent", 3)
EVERY = (
    Begin(),
    Up(REF, "handle"),
    Ignored(REF),
    ChildExited(REF, KILLED, Ending.FELL),
    Fail(REF, KILLED),
    Due(Timer(("sessions",), "one", TimerKind.DELAY)),
    Stop("why", 2.0),
    KillSupervisor(("sessions",)),
    StartChild(("sessions",), SPEC, 1),
    TerminateChild(("sessions",), "one", 1, "why", 2.0),
    HibernateChild(("sessions",), "one", 1, "why", 2.0),
    RestartChild(("sessions",), "one", 1),
    WakeChild(("sessions",), "one", 1),
    DeleteChild(("sessions",), "one", 1),
    Reconfigure((), ROOT),
)
"""An input of each class, as it is recorded first."""


class Watched(RecordedTree):
    """A recorded tree that remembers what it did."""

    def __init__(self, spec, records_max=1_000):
        super().__init__(spec, records_max)
        self.did = []

    def handle(self, given, now_s):
        effects = super().handle(given, now_s)
        self.did.append(effects)
        return effects

    def kept(self):
        """Return what it did of what is still recorded."""
        return [self.did[number - 1] for number in self.recorder._lines]


def lived(records_max=1_000):
    """Return a tree with one session of which everything is recorded."""
    tree = Watched(ROOT, records_max)
    tree.handle(Begin(), 0.0)
    add(tree, "one", 1.0)
    return tree


def add(tree, name, now_s, path=("sessions",)):
    """Start a session and have its agent be up."""
    spec = ChildSpec(id=name, start=SESSION, restart="temporary", shutdown=None)
    tree.handle(StartChild(path, spec, object()), now_s)
    tree.handle(Up(agent(name, path), handle=object()), now_s + 0.1)


def agent(name, path=("sessions",)):
    return Ref((*path, name), "agent", 1)


def end(tree, name, now_s):
    """Stop a session."""
    tree.handle(TerminateChild(("sessions",), name, object()), now_s)
    tree.handle(ChildExited(agent(name), KILLED, Ending.CRASH), now_s + 0.1)


def lines(tree):
    return list(tree.recorder.lines())


def leaves(kind):
    """Return the classes below ``kind`` that have none below themselves."""
    below = kind.__subclasses__()
    return {leaf for one in below for leaf in leaves(one)} if below else {kind}


def test_every_input_and_effect_has_its_row():
    """Every input has a handler and can be recorded, and every effect has a letter."""
    missing = leaves(Input) ^ set(Tree.HANDLERS)
    assert not missing, f"no row in Tree.HANDLERS, or a row of nothing: {missing}"
    assert leaves(Input) == set(get_args(AnyInput))
    assert set(LETTERS) == set(get_args(Effect))
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_a_specification_is_recorded_whole():
    """With all that is below it, and with every field."""
    tree = RecordedTree(ROOT)
    tree.handle(Begin(), 0.0)
    tree.handle(StartChild(("sessions",), SPEC, object()), 1.0)
    head, (_, started) = read(lines(tree))

    assert head.spec == ROOT
    assert started.input.spec == SPEC


@pytest.mark.parametrize("given", EVERY, ids=lambda given: type(given).__name__)
def test_an_input_is_read_as_it_was_written(given):
    """Whatever its class and its fields."""
    recorder = Recorder(ROOT)
    recorder.keep(given, 1.5, "L")
    _, (read_again,) = read(recorder.lines())

    assert read_again == RecordedInput(1.5, given, "L")


@pytest.mark.parametrize("given", EVERY, ids=lambda given: type(given).__name__)
def test_a_line_leaves_nothing_out(given):
    """A recording is replayed years later: no default of today may stand for one of then."""
    recorder = Recorder(ROOT)
    recorder.keep(given, 1.5, "")
    _, line = map(json.loads, recorder.lines())

    assert set(line) == set(RecordedInput.__struct_fields__)
    assert set(line["input"]) == {"type", *type(given).__struct_fields__}
    for spec in (line["input"].get("spec") or {}).get("children", ()):
        assert set(spec) == {one.name for one in fields(ChildSpec)}


def test_every_class_of_input_is_tried():
    """A new one is to be added to ``EVERY``."""
    assert {type(one) for one in EVERY} == leaves(Input)


def test_another_way_to_keep_children_is_played_again():
    """With what it changes, and from then on."""
    tree = lived()
    other = SupervisorSpec(flags=Flags(max_restarts=0), children=ROOT.children)
    tree.handle(Reconfigure((), other), 2.0)
    *_, played = replay(lines(tree))

    assert (played.recorded.input, played.effects) == (Reconfigure((), other), tree.did[-1])


def test_random_lives_are_played_again_with_the_same_effects():
    """The effects are equal, not only their letters, and whoever was forgotten is not missed."""
    chance = Random(5)
    scenes, fates, forgotten = stock(chance), deck(TEMPERS[1], chance), 0
    for number in range(LIVES):
        dice = Random(number)
        scene = scenes.scene(dice)
        tree = Watched(scene.spec)

        assert Schedule(tree, scene, fates, dice).play() == []
        forgotten += len(tree.did) - len(tree.recorder._lines)
        played = list(replay(lines(tree)))
        assert [one.effects for one in played] == tree.kept()
        assert all(one.is_same for one in played)
    assert forgotten > 0


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
def test_an_incident_is_decided_as_it_was_put_right(path):
    """Each incident went wrong once; its record has what is right, and no rule is broken."""
    record = path.read_bytes().splitlines()

    assert all(one.is_same for one in replay(record))
    assert [text for is_right, text in shown(record) if not is_right] == []


def test_names_stand_for_what_means_nothing_to_the_tree():
    """Posts, calls, handles and records are named, and a traceback is left out."""
    tree = lived()
    raised = Raised(type="ValueError", message="no", traceback="line 1\nline 2")
    tree.handle(ChildExited(agent("one"), raised, Ending.CRASH, record=object()), 2.0)
    _, (_, started, up, exited) = read(lines(tree))

    assert (started.input.call, up.input.handle) == (1, "object")
    assert started.input.spec.start.children[0].start == "agent"
    assert exited.input.reason == msgspec.structs.replace(raised, traceback="")
    assert exited.input.record == "object"


def test_a_session_that_is_over_is_forgotten():
    """What is left is played as it was, whoever came and went."""
    tree = lived()
    before = lines(tree)
    for number in range(5):
        add(tree, f"s{number}", 10.0 + number)
        add(tree, "child", 10.1 + number, ("sessions", f"s{number}", "below"))
        inner = agent("child", ("sessions", f"s{number}", "below"))
        tree.handle(ChildExited(inner, KILLED, Ending.FINAL), 10.2 + number)
        end(tree, f"s{number}", 10.3 + number)

    assert lines(tree) == before
    end(tree, "one", 20.0)
    assert len(lines(tree)) == 2
    assert all(one.is_same for one in replay(lines(tree)))


def test_who_ends_with_its_supervisor_is_not_forgotten():
    """What the root did when it was stopped depends on who was there."""
    tree = lived()
    add(tree, "two", 2.0)
    tree.handle(Stop("stop", None), 3.0)
    for name in ("one", "two"):
        tree.handle(ChildExited(agent(name), KILLED, Ending.CRASH), 4.0)

    assert tree.end is not None
    assert len(lines(tree)) == len(tree.did) + 1
    assert all(one.is_same for one in replay(lines(tree)))


def test_a_full_record_counts_what_it_loses():
    """It can be read then, and playing it is refused."""
    tree = lived(records_max=4)
    for number in range(3):
        tree.handle(ChildExited(Ref((), "nobody", number), KILLED, Ending.CRASH), 2.0)
    head, kept = read(lines(tree))

    assert (head.dropped, len(kept)) == (2, 4)
    with pytest.raises(InvalidOptions, match="2 inputs behind the head are missing"):
        list(replay(lines(tree)))


def test_a_refused_input_is_not_kept_and_one_that_raised_is(monkeypatch):
    """The last line of an incident is what the tree could not bear."""
    tree = lived()
    before = lines(tree)
    with pytest.raises(InvalidOptions):
        tree.handle(StartChild((), ChildSpec(id="", start="handler"), 1), 2.0)
    assert lines(tree) == before

    monkeypatch.setitem(Tree.HANDLERS, KillSupervisor, lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        tree.handle(KillSupervisor(()), 3.0)

    assert read(lines(tree))[1][-1].did == RAISED


@pytest.mark.parametrize(
    "text", ["", "{}", '{"version":1,"spec":{}}', '{"version":99}', "not JSON"]
)
def test_what_is_no_record_is_refused(text):
    """Whatever it is."""
    with pytest.raises(InvalidOptions, match="record"):
        read(text.encode().splitlines())


def test_a_start_is_a_name_in_effects_too():
    """Who plays a record sees whose process was started."""
    played = [effect for one in replay(lines(lived())) for effect in one.effects]

    assert [one.start for one in played if isinstance(one, Launch)] == ["agent"]


def test_a_session_that_lives_long_does_not_grow_its_story():
    """Its lines go when there is no room, and what is known of them goes with them."""
    tree = lived(records_max=8)
    place = ("sessions", "one")
    for number in range(100):
        tree.handle(HibernateChild(place, "agent", object()), number)
        tree.handle(ChildExited(Ref(place, "agent", number + 1), KILLED, Ending.CRASH), number)
        tree.handle(WakeChild(place, "agent", object()), number)
        tree.handle(Up(Ref(place, "agent", number + 2)), number)
    stories = [len(story) for story in tree.recorder._stories.values()]
    tree.handle(TerminateChild(("sessions",), "one", object()), 200.0)
    tree.handle(ChildExited(Ref(place, "agent", 101), KILLED, Ending.CRASH), 200.0)

    assert stories == [8]
    assert tree.recorder._stories == {}
