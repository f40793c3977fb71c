"""Hot plugins: attached, updated and detached as a whole or not at all, and back after a crash."""

import pytest

from cmdc_runtime.commands import PLUGINS_MAX, AttachPlugin, DetachPlugin
from cmdc_runtime.errors import AlreadyAttached, InvalidOptions, PluginNotFound
from cmdc_runtime.events import PluginAttached, PluginDetached, PluginEvent, PluginUpdated
from cmdc_runtime.packed_code import Packed
from workers.core.inputs import PluginLoaded
from workers.core.plugins import with_hooks
from workers.core.state import PluginFacts, State
from workers.core.step import ChangePlugins, Complete, LoadPlugin
from workers.core.verdict import Aborted, Verdict

PACKED = Packed(kind="ref", label="guard", ref="guard")
OTHER = Packed(kind="ref", label="guard", ref="guard", data=b"\x80")
ATTACH, UPDATE = AttachPlugin(plugin=PACKED), AttachPlugin(plugin=OTHER, is_update=True)
HOOKS = frozenset({"before_tool"})
SAID = Verdict(states=(("guard", b"one"),), emitted=(("ready", 1),))


def loaded(command=ATTACH, verdict=SAID, hooks=HOOKS, problem=""):
    """Return what opening the packed code of a command gives."""
    facts = None if problem else PluginFacts("guard", hooks, command.plugin)
    return PluginLoaded("c", command, facts, verdict, problem)


def attached(session, state=State.IDLE):
    return session.at(state).give(ATTACH).post(loaded())


@pytest.mark.parametrize("state", State)
def test_a_plugin_is_opened_then_asked(session, state):
    """In any state; what it said at its start is taken down in the same step."""
    opening = session.at(state).give(ATTACH)
    assert opening.effects == (LoadPlugin("c", ATTACH),)
    after = opening.post(loaded())

    assert after.events() == [
        PluginAttached(name="guard"),
        PluginEvent(name="ready", payload=1),
    ]
    assert after.of(Complete) == [Complete("c", "guard")]
    assert after.of(ChangePlugins) == [ChangePlugins("c", attached=True, detached=())]
    assert after.memory.plugins == (PluginFacts("guard", HOOKS, PACKED),)
    assert after.memory.plugin_states == (("guard", b"one"),)
    assert after.rebuilt().plugins == after.memory.plugins


@pytest.mark.parametrize(
    ("first", "then", "error", "text"),
    [
        (None, loaded(problem="guard: no such module"), InvalidOptions, "no such module"),
        (
            None,
            loaded(verdict=Verdict(abort=Aborted("guard", "no key"))),
            InvalidOptions,
            "plugin 'guard' refused to start: no key",
        ),
        (None, loaded(UPDATE), PluginNotFound, "there is no plugin 'guard'; plugins: none"),
        (loaded(), loaded(), AlreadyAttached, "update it, or detach it first"),
    ],
    ids=["broken", "unwilling", "nothing to update", "there already"],
)
def test_what_cannot_be_attached_changes_nothing(session, first, then, error, text):
    """The error says why; what was opened is dropped."""
    before = session.at(State.IDLE)
    before = before if first is None else before.post(first)
    after = before.post(then)
    (settled,) = after.of(Complete)

    assert isinstance(settled.outcome, error)
    assert text in str(settled.outcome)
    assert after.memory == before.memory
    assert after.of(ChangePlugins) == [ChangePlugins("c", attached=False, detached=())]


def test_a_session_has_so_many_plugins(session):
    """More are a mistake in a loop."""
    full = tuple(PluginFacts(f"p{at}", frozenset()) for at in range(PLUGINS_MAX))
    before = session.at(State.IDLE)
    before = before.remembering(_with(before.memory, full))
    (settled,) = before.post(loaded()).of(Complete)

    assert f"at most {PLUGINS_MAX}" in str(settled.outcome)


def test_an_updated_plugin_keeps_its_place_and_its_state(session):
    """Other options, or other code, and the same name."""
    before = attached(session)
    after = before.give(UPDATE).post(loaded(UPDATE, Verdict(), frozenset({"before_prompt"})))

    assert after.events() == [PluginUpdated(name="guard")]
    assert after.memory.plugins == (PluginFacts("guard", frozenset({"before_prompt"}), OTHER),)
    assert after.memory.plugin_states == before.memory.plugin_states
    assert after.rebuilt().plugins == after.memory.plugins


def test_a_detached_plugin_is_forgotten(session):
    """With what it knew; one of the same name begins anew."""
    after = attached(session).give(DetachPlugin(name="guard"))

    assert after.events() == [PluginDetached(name="guard")]
    assert after.of(Complete) == [Complete("c", None)]
    assert after.of(ChangePlugins) == [ChangePlugins("c", attached=False, detached=("guard",))]
    assert (after.memory.plugins, after.memory.plugin_states) == ((), ())
    assert after.rebuilt().plugins == ()


def test_what_is_not_there_cannot_be_detached(session):
    """The error names what is."""
    before = attached(session)
    after = before.give(DetachPlugin(name="gurad"))
    (settled,) = after.effects

    assert str(settled.outcome) == "there is no plugin 'gurad'; plugins: guard"
    assert after.memory == before.memory


def test_hooks_are_those_of_this_process(session):
    """Installed code may hear of more than it did when it was attached."""
    memory = attached(session).memory
    known = with_hooks(memory, {"guard": frozenset({"session_end"})})

    assert known.plugins[0].hooks == {"session_end"}
    assert with_hooks(memory, {}) == memory


def _with(memory, plugins):
    return type(memory)(policy=memory.policy, plugins=plugins)
