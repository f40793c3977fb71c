"""A containment while its process ends: nothing is opened, watched or counted for what is gone."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from cmdc_runtime.requests import Supervision
from supervisor.core.cgroups import Controller, Usage
from supervisor.core.exits import ExitRecord, classify
from supervisor.processes.containment import Containment
from tests.unit.supervisor.services import play

LIMITED = Supervision(memory_limit=2**30)
GATE_S = 5.0


class Cgroup:
    """A cgroup in which each step waits until the test lets it go on."""

    def __init__(self, *, parts=("room",), guards=frozenset({Controller.MEMORY})):
        self.name, self.parts, self.guards = "cgroup", list(parts), guards
        self.done = []
        self.kills = 0
        self.gates = {}

    def admit(self, pid):
        return self._step("admit", outcome=True)

    def kill(self):
        return self._step("kill", outcome=True)

    def is_empty(self):
        return True

    def usage(self):
        self.done.append("usage")
        return Usage(oom_kills=self.kills)

    def close(self):
        return self._step("close", outcome=True)

    def opened(self):
        self._step("open", outcome=True)
        return self

    def hold(self, step):
        """Hold a step up; returns what lets it go on."""
        reached, gate = threading.Event(), threading.Event()
        self.gates[step] = reached, gate
        return reached, gate

    def _step(self, step, *, outcome):
        reached, gate = self.gates.get(step, (threading.Event(), None))
        reached.set()
        if gate is not None:
            gate.wait(GATE_S)
        self.done.append(step)
        return outcome


class Watch:
    """Who is watched, by heartbeats and footprint alike."""

    def __init__(self):
        self.watched = set()

    def watch(self, containment, *_more):
        self.watched.add(containment)

    def unwatch(self, containment):
        self.watched.discard(containment)

    forget = unwatch


class Setting:
    """What containments have in common, without a file."""

    def __init__(self, cgroup):
        self.cgroups = SimpleNamespace(
            open=lambda _name, _limits: cgroup.opened(), unenforced=lambda _limits: ()
        )
        self.heartbeat_watch, self.footprint, self.limited = Watch(), Watch(), set()
        self.named = []
        self.outputs = SimpleNamespace(
            name=lambda worker_id, **_bound: self.named.append(worker_id),
            forget=self.named.remove,
            drained=self._drained,
            tail=lambda _worker_id, _bytes: "",
        )
        heartbeat = SimpleNamespace(
            heartbeat_ns=0,
            last_index=0,
            activity=SimpleNamespace(state="", turns=0, tools=(), opening=0),
            usage=SimpleNamespace(max_rss_bytes=0, user_us=0, system_us=0),
        )
        self.heartbeats = SimpleNamespace(read=lambda _slot: heartbeat, release=lambda _slot: None)
        self.bringing, self.tasks = {}, []

    async def _drained(self, _worker_id, _bound_s):
        pass

    def spawn(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    @property
    def is_rid_of_it(self):
        """Whether nobody knows the process any more."""
        return not (
            self.heartbeat_watch.watched or self.footprint.watched or self.limited or self.named
        )


class Worker:
    """The worker of a containment, which knows whether its process has ended."""

    has_ended = False

    def on_contained(self):
        pass


def contained(setting):
    """Return the surroundings of a worker that lives."""
    containment = Containment(setting, "w-1", 0)
    containment.worker = Worker()
    return containment


def end(containment):
    """Have its process end, as the pool does."""
    containment.worker.has_ended = True
    containment.ended()


async def reached(event):
    assert await asyncio.to_thread(event.wait, GATE_S)


@pytest.mark.parametrize("step", ["open", "admit"])
def test_process_that_ends_while_its_cgroup_is_made(step):
    """It is not watched, and the cgroup is closed whichever of the two is done first."""

    async def scenario():
        cgroup = Cgroup()
        setting = Setting(cgroup)
        containment = contained(setting)
        is_there, gate = cgroup.hold(step)
        containment.assign(7, "s", 1, LIMITED)
        await reached(is_there)
        end(containment)
        finalizing = asyncio.ensure_future(examined(containment))
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(finalizing, *setting.tasks)
        return cgroup.done[-1], "admit" in cgroup.done, setting.is_rid_of_it

    assert play(scenario) == ("close", step == "admit", True)


async def examined(containment):
    record = ExitRecord(-9, pid=7)
    await containment.examine(record, 1.0)
    await containment.close()
    return record


def test_what_comes_after_the_end_is_watched_by_nobody():
    """A frame that was read last does not make a dead process one that must heartbeat."""

    async def scenario():
        cgroup = Cgroup()
        setting = Setting(cgroup)
        containment = contained(setting)
        containment.assign(7, "s", 1, Supervision())
        end(containment)
        containment.expect(7, 30.0)
        containment.idle()
        await examined(containment)
        await containment.close()
        await asyncio.gather(*setting.tasks)
        return cgroup.done, setting.is_rid_of_it

    assert play(scenario) == ([], True)


@pytest.mark.parametrize(
    ("looks", "at_end", "reported"),
    [
        ((), 1, "OutOfMemory"),
        ((0, 1), 1, "OutOfMemory"),  # the last look was on the dying process itself
        ((1, 1), 1, "Signal"),  # a tool's, in an earlier turn
        ((1, 1), 2, "OutOfMemory"),
    ],
)
def test_oom_kill_counts_unless_the_process_has_survived_it(looks, at_end, reported):
    """A look that comes while a large process dies does not take that away."""

    async def scenario():
        cgroup = Cgroup()
        containment = contained(Setting(cgroup))
        containment.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*containment.shared.tasks)
        for kills in looks:
            containment.count_ooms(kills)
        cgroup.kills = at_end
        end(containment)
        return classify(await examined(containment))

    assert type(play(scenario)).__name__ == reported


def test_containment_without_cgroups_is_not_asked_for_each_process():
    """It would read the whole process table for each of those that die at once."""

    async def scenario():
        cgroup = Cgroup(parts=(), guards=frozenset())
        setting = Setting(cgroup)
        containment = contained(setting)
        containment.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*setting.tasks)
        containment.kill()
        end(containment)
        await examined(containment)
        await asyncio.gather(*setting.tasks)
        return cgroup.done

    assert play(scenario) == ["open", "admit", "close"]


def test_only_counted_memory_is_looked_at():
    """Where no cgroup counts OOM kills there is nothing to look at each second."""

    async def limited(guards):
        setting = Setting(Cgroup(guards=guards))
        containment = contained(setting)
        containment.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*setting.tasks)
        return len(setting.limited)

    assert play(lambda: limited(frozenset({Controller.MEMORY}))) == 1
    assert play(lambda: limited(frozenset())) == 0
