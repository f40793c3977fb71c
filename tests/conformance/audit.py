"""What holds in every case, whatever the case is about: looked at in every step."""

from collections import Counter
from dataclasses import dataclass, field

from supervisor.core.tree.specs import SupervisorSpec


def named(ref):
    """Return a process's name in the log."""
    return "/".join((*ref.path, f"{ref.child}{ref.generation}"))


@dataclass(slots=True)
class Audit:
    """What holds in every case, asked at every step."""

    alive: dict = field(default_factory=dict)
    """The processes that were launched and have not ended, by place."""
    last: dict = field(default_factory=dict)
    """The last generation of each place."""
    added: Counter = field(default_factory=Counter)
    """The places of new children, each with the generation before its first."""
    stopping: set = field(default_factory=set)
    """The supervisors that were about to end when the last step was over."""
    timers: set = field(default_factory=set)
    reported: Counter = field(default_factory=Counter)
    due_back: set = field(default_factory=set)
    """The places of which a Down said that another process follows."""

    def expects(self, spec, path=()):
        """Record where the generations of a new child begin, and of those below it."""
        place = (*path, spec.id)
        self.added[place, spec.generation] += 1
        if isinstance(spec.start, SupervisorSpec):
            for one in spec.start.children:
                self.expects(one, place)

    def launched(self, ref):
        """No start after a stop, no two processes of one child, no generation left out or twice."""
        place = (*ref.path, ref.child)
        assert ref.path not in self.stopping, f"{named(ref)} was started after a stop"
        assert place not in self.alive, f"{named(ref)} beside {named(self.alive[place])}"
        if self.last.get(place) != ref.generation - 1:
            assert self.added[place, ref.generation - 1] > 0, (
                f"{named(ref)}: {self.last.get(place)}"
            )
            self.added[place, ref.generation - 1] -= 1
        self.alive[place], self.last[place] = ref, ref.generation
        for restarting in (False, True):  # one that was forgotten and added again counts anew
            self.reported.pop((ref, restarting), None)

    def ended(self, ref):
        """A process ends once."""
        place = (*ref.path, ref.child)
        assert self.alive.pop(place, None) == ref, f"{named(ref)} ended twice"

    def delivered(self, ended):
        """Who watches hears once that a process ended, and at most once more that none follows."""
        place = (*ended.ref.path, ended.ref.child)
        (self.due_back.add if ended.restarting else self.due_back.discard)(place)
        self.reported[ended.ref, ended.restarting] += 1
        assert self.reported[ended.ref, ended.restarting] == 1, ended
        assert not (ended.restarting and self.reported[ended.ref, False]), ended

    def is_over(self):
        """Check that nothing is left."""
        assert self.alive == {}
        assert self.timers == set()
        assert self.due_back == set(), "who was to come back never did, and no Down said so"
