"""Every interleaving of ends, commits, losses, kills and clients: each monitor hears exactly once.

The client's books are the real ones; the link delivers when the test says so, or loses.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cmdc_runtime.client.monitors import Monitors
from cmdc_runtime.ids import new_monitor_ref
from cmdc_runtime.requests import GetFacts, Monitor

TURNS = 30
"""Of the loop, until nothing of one step is left to do."""
NAMES = ("a", "b")
ENDS = ("crash", "replace", "replace", "stop", "hibernate")
LIVES = ("next", "fail", "close", "create")
CLIENTS = ("watch", "watch_all", "watch_all", "unwatch")
MOVES = ("to_daemon", "to_client", "commit", "commit_one", "flow")
FAULTS = ("ask_facts", "resend", "repeat", "double", "forget", "cut", "kill")
STORIES = (
    "watch_all flow",
    "watch flow",
    "replace flow",
    "ask_facts flow",
    # A notice that is lost is missed when the next one comes, or when the counts are compared.
    "replace commit cut",
    "replace commit cut ask_facts flow",
    "replace commit cut replace flow",
    "replace commit double to_client to_client replace commit cut ask_facts flow",
    # Something ends while a monitor is set, or set again.
    "watch to_daemon stop flow",
    "watch_all to_daemon replace flow",
    "crash watch_all to_daemon next crash flow",
    "replace commit cut ask_facts to_daemon to_client to_daemon replace flow",
    "replace commit cut ask_facts to_daemon to_client to_daemon stop commit_one flow",
    # The daemon dies before, while and after it records an end.
    "crash kill",
    "crash commit kill",
    "crash commit flow kill",
    "crash fail commit kill crash",
    "hibernate commit kill",
    "stop commit kill",
    # The answer is lost, and something ended since.
    "watch_all to_daemon commit replace commit cut",
    "watch_all to_daemon replace commit cut",
    "watch_all to_daemon commit replace commit cut ask_facts to_daemon to_client resend",
    "watch to_daemon commit stop commit cut ask_facts to_daemon to_client resend",
    "watch_all to_daemon replace commit to_client cut forget crash",
    "watch_all flow crash forget repeat to_daemon flow",
    "stop close watch to_daemon commit cut",
    # The id is used again before the client has heard of the end.
    "stop commit cut close create",
    "ask_facts to_daemon to_client replace",
)
STEPS = st.one_of(
    st.sampled_from([story.split() for story in STORIES]),
    *(
        st.sampled_from(steps).map(lambda step: [step])
        for steps in (ENDS, LIVES, CLIENTS, MOVES, FAULTS)
    ),
)


@dataclass
class Ear:
    """A monitor of the application: what it heard, and where in the log it may begin."""

    session_id: str
    persistent: bool
    first: int
    last: int | None = None
    ref: str = field(default_factory=new_monitor_ref)
    heard: list = field(default_factory=list)
    is_removed: bool = False
    removed_at: int | None = None

    def on_down(self, down):
        self.heard.append((down.at_ms, down.incarnation, down.restarting))

    def on_end(self, error):
        raise AssertionError(error)

    def heard_from(self, log, start):
        """Return what it hears if it was set before the end at ``start``."""
        found = []
        for end in log[start:]:
            if len(found) == self.removed_at:
                break
            found.append(end)
            if not (self.persistent and end[-1]):
                break
        return found


class World:
    """One client, and what is on its way between it and the daemon."""

    def __init__(self, daemons):
        self.daemons = daemons
        self.ears = []
        self.inward = deque()  # (id, request)
        self.sent = []
        self.asked = {}  # id -> (request, future): what the client waits for
        self.instance = daemons.instance
        self.books = Monitors(self)
        self.tasks = set()
        self.books.reconcile(daemons.monitors.notices(b"c-1"), is_new=False)

    def ask(self, request):
        self.notify(request)
        future = asyncio.get_running_loop().create_future()
        self.asked[len(self.sent)] = (request, future)
        return future

    def notify(self, request):
        self.sent.append(request)
        self.inward.append((len(self.sent), request))

    def spawn(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task

    async def take(self, step, name, *, is_calm):
        """Take one step, and if ``is_calm`` all that follows from it."""
        await (getattr(self, step, None) or getattr(self.daemons, step))(name)
        for _ in range(TURNS if is_calm else 0):
            await asyncio.sleep(0)

    async def watch(self, name, *, persistent=False):
        """Set a monitor."""
        ends = self.daemons.ends(name)
        # Of a session that is over the last end is the answer.
        first = len(ends) - (len(ends) > 0 and not ends[-1][-1])
        ear = Ear(name, persistent, first)
        self.ears.append(ear)
        self.spawn(self._add(ear))

    async def watch_all(self, name):
        """Set a persistent monitor."""
        await self.watch(name, persistent=True)

    async def _add(self, ear):
        await self.books.add(ear.session_id, ear, ref=ear.ref, persistent=ear.persistent)
        ear.last = len(self.daemons.ends(ear.session_id))

    async def unwatch(self, _name):
        """Remove the oldest monitor."""
        for ear in self.ears:
            if ear.last is not None and not ear.is_removed:
                ear.is_removed = True
                self.spawn(self._remove(ear))
                return

    async def _remove(self, ear):
        ear.removed_at = len(ear.heard)
        await self.books.remove(ear.ref)

    async def ask_facts(self, _name):
        """Ask who the daemon is and how many notices it has sent."""
        self.notify(GetFacts())

    async def resend(self, _name):
        """Ask again what is open."""
        self.inward.extend((number, request) for number, (request, _) in self.asked.items())

    async def repeat(self, _name):
        """Let the last request for a new monitor arrive once more."""
        asks = [
            (number, one)
            for number, one in enumerate(self.sent, 1)
            if isinstance(one, Monitor) and one.since is None
        ]
        self.inward.extend(asks[-1:])

    async def to_daemon(self, _name):
        """Let the first request arrive."""
        if self.inward:
            self.daemons.receive(*self.inward.popleft())

    async def to_client(self, _name):
        """Let the first answer or notice arrive."""
        if not self.daemons.outward:
            return
        number, frame = self.daemons.outward.popleft()
        if number is None:
            self.books.take(frame)
        elif isinstance(self.sent[number - 1], GetFacts):
            notices, instance = frame
            is_new, self.instance = instance != self.instance, instance
            if is_new:
                await self.resend(None)
            self.books.reconcile(notices, is_new=is_new)
        elif number in self.asked:
            self.asked.pop(number)[1].set_result(frame)

    async def double(self, _name):
        """Let the first answer or notice arrive twice."""
        if self.daemons.outward:
            self.daemons.outward.insert(1, self.daemons.outward[0])

    async def flow(self, _name):
        """Let all arrive and be done that is under way."""
        while self.inward or self.daemons.outward or self.daemons.journal.waiting:
            for step in ("commit", "to_daemon", "to_client"):
                await self.take(step, None, is_calm=True)

    async def cut(self, _name):
        """Lose all that is under way."""
        self.inward.clear()
        self.daemons.outward.clear()

    async def kill(self, name):
        """Kill the daemon, and what was under way with it: ends that were not recorded, too."""
        self.inward.clear()
        for ear in self.ears:
            ear.first = min(ear.first, len(self.daemons.journal.log(ear.session_id)))
        await self.daemons.kill(name)

    async def heal(self):
        """Let everything arrive, ask again what is open, and ask for the facts until all agree."""
        for _ in range(3):
            await self.resend(None)
            await self.ask_facts(None)
            await self.flow(None)

    def check(self):
        """Each heard an unbroken run of the log that begins where it was set."""
        logs = {name: self.daemons.journal.log(name) for name in NAMES}
        for name, log in logs.items():
            assert set(self.daemons.published[name]) <= set(log), name
        for ear in self.ears:
            log = logs[ear.session_id]
            runs = [ear.heard_from(log, start) for start in range(ear.first, ear.last + 1)]
            assert ear.heard in runs, (ear, log)
            if ear.is_removed:
                assert len(ear.heard) == ear.removed_at, ear
            elif self.daemons.sessions[ear.session_id].phase == "ended":
                # A later session of the same id is another one, of which it hears nothing.
                assert ear.heard, ear
                assert not (ear.persistent and ear.heard[-1][-1]), ear


async def played(daemons, stories):
    """Play stories of (steps, session, whether each is calm), heal the world, and check it."""
    for name in NAMES:
        await daemons.create(name)
    world = World(daemons)
    for steps, name, is_calm in stories:
        for step in steps:
            await world.take(step, name, is_calm=is_calm)
    await world.heal()
    world.check()
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)


@given(st.lists(st.tuples(STEPS, st.sampled_from(NAMES), st.booleans()), min_size=5, max_size=30))
@example(
    [
        (["crash", "kill"], "b", False),
        (["crash"], "b", False),
        (["watch"], "b", False),
        (["kill"], "b", False),
    ]
)
@example(
    [
        (["watch_all"], "a", False),
        (["stop", "close", "commit"], "a", False),
        (["crash", "to_daemon"], "a", True),
        (["create"], "a", False),
    ]
)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@pytest.mark.slow
def test_each_monitor_hears_exactly_once(play, stories):
    """What was recorded after it was set, in order, none left out and none twice."""
    play(lambda daemons: played(daemons, stories))


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("is_calm", [True, False], ids=["calm", "hasty"])
def test_each_monitor_hears_exactly_once_in_one_story(play, story, is_calm):
    """With one monitor of either kind before it."""
    before = (("watch_all", "watch", "flow"), "a", True)
    play(lambda daemons: played(daemons, [before, (story.split(), "a", is_calm)]))
