"""Plugins are asked where they listen, and what they say is taken down."""

import pytest

from cmdc_runtime.events import ModelSwitched, PluginCrashed, PluginEvent
from cmdc_runtime.extensions.hooks import BeforePrompt, kind_of
from tests.unit.workers.core.conftest import taken
from workers.core.plugins import apply_verdict, ask_plugins
from workers.core.records import ModelChanged, Noted, PluginsChanged
from workers.core.state import AskingPlugins, Compacting, Memory, PluginFacts, State
from workers.core.step import AskPlugins, Publish, Step, WriteRecord
from workers.core.verdict import Verdict

HOOK = BeforePrompt("go")


def test_nobody_is_asked_who_does_not_listen():
    """The cycle goes on at once."""
    step = Step(Memory())

    assert not ask_plugins(step, HOOK)
    assert step == Step(Memory())


def test_a_cycle_waits_for_plugins_that_listen():
    """Under a number of its own, so that what was under way is late."""
    memory = Memory(plugins=(PluginFacts("p", frozenset({kind_of(BeforePrompt)})),), work=3)
    wanted = Compacting(2, "size")
    step = Step(memory)

    assert ask_plugins(step, HOOK, wanted)
    assert step.state is State.RUNNING
    assert step.effects == (AskPlugins(4, HOOK),)
    assert (step.memory.work, step.memory.activity) == (4, AskingPlugins("before_prompt", wanted))


def test_nothing_said_changes_nothing():
    """No record, no event."""
    memory = Memory(model="x:m")

    assert taken(apply_verdict, memory, Verdict()) == Step(memory)


def test_what_plugins_say_is_taken_down():
    """States and notes are written down; failures and events are published."""
    verdict = Verdict(
        interventions=("mind", "the gap"),
        states=(("p", b"1"), ("q", b"2")),
        crashed=(("r", "before_prompt", "broke"),),
        emitted=(("news", {"n": 1}),),
    )
    before = Memory(plugin_states=(("p", b"0"), ("s", b"9")))
    step = taken(apply_verdict, before, verdict)
    memory = step.memory

    assert memory.notes == ("mind", "the gap")
    assert dict(memory.plugin_states) == {"p": b"1", "q": b"2", "s": b"9"}
    assert step.effects == (
        WriteRecord(PluginsChanged(states={"p": b"1", "q": b"2"})),
        Publish(PluginCrashed(plugin="r", hook="before_prompt", error="broke")),
        Publish(PluginEvent(name="news", payload={"n": 1})),
        WriteRecord(Noted(notes=("mind", "the gap"))),
    )


@pytest.mark.parametrize(
    ("given", "opts", "is_changed"),
    [
        (("y:n", None), {"seed": 1}, True),
        (("x:m", {"seed": 2}), {"seed": 2}, True),
        (("x:m", None), {"seed": 1}, False),
        (("x:m", {"seed": 1}), {"seed": 1}, False),
    ],
    ids=["model", "options", "same", "same options"],
)
def test_a_plugin_may_switch_the_model(given, opts, is_changed):
    """Options stay where it names none; the same ones are no switch."""
    before = Memory(model="x:m", provider_opts={"seed": 1})
    step = taken(apply_verdict, before, Verdict(model=given))
    memory = step.memory
    kept = WriteRecord(ModelChanged(model=given[0], provider_opts=opts))
    switched = ModelSwitched(
        from_="x:m", to=given[0], provider_opts_changed=opts != before.provider_opts
    )

    assert (memory.model, memory.provider_opts) == (given[0], opts)
    assert step.effects == ((kept, Publish(switched)) if is_changed else ())
