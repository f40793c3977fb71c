"""What was told to a tree can be played again, and a record is bounded."""

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
from supervisor.core.tree import recording
from supervisor.core.tree.recorder import RecordedTree
from supervisor.core.tree.recording import (
    LETTERS,
    RAISED,
    ChildRecord,
    Input,
    SupervisorRecord,
    Taken,
    read,
    replay,
)
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec
from supervisor.core.tree.tree import Tree
from supervisor.core.tree.words import Effect, Ending, Launch, Ref, Stop

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


class Watched(RecordedTree):
    """A recorded tree that remembers what it did."""

    def __init__(self, spec, records_max=1_000):
        super().__init__(spec, records_max)
        self.did = []

    def _kept(self, taken, given, *arguments, **named):
        effects = super()._kept(taken, given, *arguments, **named)
        self.did.append(effects)
        return effects

    def kept(self):
        """Return what it did of what is still recorded."""
        return [self.did[number - 1] for number in self.recorder._lines]


def lived(records_max=1_000):
    """Return a tree with one session of which everything is recorded."""
    tree = Watched(ROOT, records_max)
    tree.begin(0.0)
    add(tree, "one", 1.0)
    return tree


def add(tree, name, now_s, path=("sessions",)):
    """Start a session and have its agent be up."""
    spec = ChildSpec(id=name, start=SESSION, restart="temporary", shutdown=None)
    tree.start_child(path, spec, object(), now_s)
    tree.up(agent(name, path), now_s + 0.1, handle=object())


def agent(name, path=("sessions",)):
    return Ref((*path, name), "agent", 1)


def end(tree, name, now_s):
    """Stop a session."""
    tree.terminate_child(("sessions",), name, object(), now_s, Stop())
    tree.exited(agent(name), KILLED, Ending.CRASH, now_s + 0.1)


def lines(tree):
    return list(tree.recorder.lines())


def test_every_input_and_effect_has_its_word():
    """A method of the tree that takes the time is an input, and every effect has a letter."""
    inputs = [
        name
        for name, method in vars(Tree).items()
        if not name.startswith("_") and "now_s" in getattr(method, "__annotations__", ())
    ]

    assert sorted(get_args(Input)) == sorted(inputs) == sorted(recording._GIVEN)
    assert set(inputs) <= set(vars(RecordedTree))
    assert set(LETTERS) == set(get_args(Effect))
    assert len(set(LETTERS.values())) == len(LETTERS)


@pytest.mark.parametrize(
    ("record", "spec"), [(ChildRecord, ChildSpec), (SupervisorRecord, SupervisorSpec)]
)
def test_a_record_has_the_fields_of_its_specification(record, spec):
    """Each with the same default, which is left out."""
    assert list(record.__struct_fields__) == [one.name for one in fields(spec)]
    assert record.of(spec(**needed(spec))).spec() == spec(**needed(spec))
    assert record(**needed(spec)).spec() == spec(**needed(spec))


def needed(spec):
    return {"id": "a", "start": "post"} if spec is ChildSpec else {}


def test_what_a_line_leaves_out_stays_what_it_was():
    """A record is played years later: no default of today may stand for one of then."""
    short = Taken(at_s=1.0, input="up")
    _, (read_again,) = read([b'{"version":1,"spec":{}}', b'{"at_s":1.0,"input":"up"}'])

    assert read_again == short
    assert (short.generation, short.call, short.path, short.child) == (0, 0, (), "")
    assert (short.ending, short.deadline_s, short.did) == (Ending.CRASH, None, "")


def test_another_way_to_keep_children_is_played_again():
    """With what it changes, and from then on."""
    tree = lived()
    tree.reconfigure((), SupervisorSpec(flags=Flags(max_restarts=0), children=ROOT.children), 2.0)
    *_, played = replay(lines(tree))

    assert (played.taken.input, played.effects) == ("reconfigure", tree.did[-1])
    assert played.taken.spec.flags.max_restarts == 0


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
    """Posts, calls and handles are named, and a traceback is left out."""
    tree = lived()
    raised = Raised(type="ValueError", message="no", traceback="line 1\nline 2")
    tree.exited(agent("one"), raised, Ending.CRASH, 2.0)
    _, (_, started, up, exited) = read(lines(tree))

    assert (started.call, up.handle) == (1, "object")
    assert started.child_spec.start.children[0].start == "agent"
    assert exited.reason == msgspec.structs.replace(raised, traceback="")


def test_a_session_that_is_over_is_forgotten():
    """What is left is played as it was, whoever came and went."""
    tree = lived()
    before = lines(tree)
    for number in range(5):
        add(tree, f"s{number}", 10.0 + number)
        add(tree, "child", 10.1 + number, ("sessions", f"s{number}", "below"))
        inner = agent("child", ("sessions", f"s{number}", "below"))
        tree.exited(inner, KILLED, Ending.FINAL, 10.2 + number)
        end(tree, f"s{number}", 10.3 + number)

    assert lines(tree) == before
    end(tree, "one", 20.0)
    assert len(lines(tree)) == 2
    assert all(one.is_same for one in replay(lines(tree)))


def test_who_ends_with_its_supervisor_is_not_forgotten():
    """What the root did when it was stopped depends on who was there."""
    tree = lived()
    add(tree, "two", 2.0)
    tree.stop("stop", None, 3.0)
    for name in ("one", "two"):
        tree.exited(agent(name), KILLED, Ending.CRASH, 4.0)

    assert tree.end is not None
    assert len(lines(tree)) == len(tree.did) + 1
    assert all(one.is_same for one in replay(lines(tree)))


def test_a_full_record_counts_what_it_loses():
    """It can be read then, and playing it is refused."""
    tree = lived(records_max=4)
    for number in range(3):
        tree.exited(Ref((), "nobody", number), KILLED, Ending.CRASH, 2.0)
    head, kept = read(lines(tree))

    assert (head.dropped, len(kept)) == (2, 4)
    with pytest.raises(InvalidOptions, match="2 inputs behind the head are missing"):
        list(replay(lines(tree)))


def test_a_refused_input_is_not_kept_and_one_that_raised_is(monkeypatch):
    """The last line of an incident is what the tree could not bear."""
    tree = lived()
    before = lines(tree)
    with pytest.raises(InvalidOptions):
        tree.start_child((), ChildSpec(id="", start="post"), 1, 2.0)
    assert lines(tree) == before

    monkeypatch.setattr(Tree, "kill", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        tree.kill((), 3.0)

    assert read(lines(tree))[1][-1].did == RAISED


@pytest.mark.parametrize("text", ["", "{}", '{"version":99,"spec":{}}', "not JSON"])
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
        tree.rest_child(place, "agent", object(), number, Stop())
        tree.exited(Ref(place, "agent", number + 1), KILLED, Ending.CRASH, number)
        tree.wake_child(place, "agent", object(), number)
        tree.up(Ref(place, "agent", number + 2), number)
    stories = [len(story) for story in tree.recorder._stories.values()]
    tree.terminate_child(("sessions",), "one", object(), 200.0, Stop())
    tree.exited(Ref(place, "agent", 101), KILLED, Ending.CRASH, 200.0)

    assert stories == [8]
    assert tree.recorder._stories == {}
