"""A step changes what is durable by records alone."""

import re
from pathlib import Path

import msgspec
import pytest

from workers import core
from workers.core.snapshot import STRIPPED, TRANSIENT
from workers.core.state import Answering, Asking, Memory, Resting, Waiter
from workers.core.step import Step

MEMORY = Memory(activity=Asking(Answering()), work=3)
LIVE = {
    "activity": lambda step: step.become(Resting()),
    "work": lambda step: step.begin_work(),
    "waiters": lambda step: step.keep_waiting([Waiter("w-1", None, None)]),
    "waiting_branches": lambda step: step.keep_branches_waiting([("c-1", "c-1:1")]),
}


def test_every_live_field_has_its_change():
    """What a new process finds empty is changed by a method of its own."""
    assert LIVE.keys() == {*TRANSIENT}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_change_touches_its_field_alone(name):
    """So a rebuilt memory is the live one, whatever a decision calls."""
    step = Step(MEMORY)
    LIVE[name](step)

    fields = [field.name for field in msgspec.structs.fields(Memory)]
    changed = {one for one in fields if getattr(step.memory, one) != getattr(MEMORY, one)}
    assert changed == {name}
    assert changed <= {*STRIPPED}


def test_nobody_else_sets_the_memory_of_a_step():
    """Beside the step itself, and the player that begins a replay."""
    setting = re.compile(r"\.memory\s*=[^=]")
    modules = Path(*core.__path__).glob("*.py")

    assert {one.stem for one in modules if setting.search(one.read_text())} == {"step", "replaying"}


def test_without_a_cycle_there_is_none_to_ask():
    """The tables do not ask then; who does has an error that names it."""
    with pytest.raises(LookupError, match="no cycle runs"):
        _ = Step(Memory()).cycle
