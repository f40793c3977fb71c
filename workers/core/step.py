"""A step under way: what a decision records, tells and has done."""

from dataclasses import dataclass, field, replace
from typing import Any

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.events import Event
from cmdc_runtime.ids import CommandId
from workers.core.effects import Complete, Effect, ExitProcess, Keep, Publish, Said, Work
from workers.core.evolve import evolve
from workers.core.records import Record
from workers.core.state import Activity, Cycle, Memory, State


@dataclass(slots=True)
class Step:
    """What one input does, decision by decision. Who called the table gets it; nobody else has it.

    What is durable changes by ``record`` alone, and by the same function that rebuilds it from the
    journal. ``change`` is for what only the running process has.
    """

    memory: Memory
    said: list[Said] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self.memory.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was said, in its order, then what is to be done, in its own."""
        return (*self.said, *self.work)

    @property
    def records(self) -> tuple[Record, ...]:
        """What goes to the journal."""
        return tuple(one.record for one in self.said if isinstance(one, Keep))

    @property
    def exits(self) -> bool:
        """Whether the process ends with this step."""
        return any(isinstance(one, ExitProcess) for one in self.work)

    @property
    def cycle(self) -> Cycle:
        """The cycle that runs."""
        assert self.memory.cycle is not None  # noqa: S101 - the tables ask only where one runs
        return self.memory.cycle

    def record(self, record: Record) -> None:
        """Say that something happened; the memory has it from here on."""
        self.memory = evolve(self.memory, record)
        self.said.append(Keep(record))

    def publish(self, *events: Event) -> None:
        """Tell observers."""
        self.said += map(Publish, events)

    def say(self, *said: Record | Event) -> None:
        """Record or publish each."""
        for one in said:
            if isinstance(one, Event):
                self.publish(one)
            else:
                self.record(one)

    # Any: the answer type of the command.
    def complete(self, command_id: CommandId, outcome: Any | CmdcError) -> None:
        """Give a durable command its one outcome: an answer, or an error that is raised."""
        self.said.append(Complete(command_id, outcome))

    def perform(self, *work: Work) -> None:
        """Have work done once all that this step says is on its way."""
        self.work += work

    # Any: fields of their own types.
    def change(self, **live: Any) -> None:
        """Change what is no part of the journal: a new process finds it empty."""
        self.memory = replace(self.memory, **live)

    def become(self, activity: Activity) -> None:
        """Say what the session is doing from here on."""
        self.memory = replace(self.memory, activity=activity)
