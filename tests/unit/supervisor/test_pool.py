"""Who gets a worker when the zygote has none to give, and whom a worker may speak for.

Those who can wait for a worker do, within bounds. What a worker says is its own or is refused.
"""

import asyncio
import gc
import os
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.errors import AccessDenied, Overloaded, ProtocolError
from cmdc_runtime.reasons import Other
from cmdc_runtime.runtime_dir import host_socket, registered_ids
from cmdc_runtime.wire.frames import Batch, Detached, HostWanted, IdleNotice, Ready, Write
from supervisor.adapters.zygote import ZygoteFailed, ZygoteLost
from supervisor.core.exits import ExitRecord
from supervisor.processes import pool as module
from supervisor.processes import worker as sweeper
from supervisor.processes.containment import Containment
from supervisor.processes.pool import WorkerPool
from supervisor.processes.starts import Starts
from supervisor.processes.worker import Worker
from tests.unit.supervisor.services import play, settle

LOST = ZygoteLost("it died")
AT_ONCE = 4


class Forking(WorkerPool):
    """A pool whose forks do what the test says."""

    def __init__(self, *problems):
        zygote = SimpleNamespace(warmed=asyncio.Event())
        super().__init__(SimpleNamespace(lean=zygote), None, None, "ipc://x", 0)
        self.problems = list(problems)
        self.forks = self.at_once = self.most = 0
        self.may_fork = asyncio.Event()
        self.may_fork.set()

    async def _fork(self, *, has_litellm=False):
        self.forks = number = self.forks + 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.may_fork.wait()
        finally:
            self.at_once -= 1
        if self.problems:
            raise self.problems.pop(0)
        return SimpleNamespace(pid=number, has_ended=False)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Try again at once."""
    monkeypatch.setattr(module, "FORK_RETRY_S", 0.0)


def always():
    return True


def never():
    return False


@pytest.mark.parametrize("problem", [LOST, ZygoteFailed("preload", "no"), Overloaded("full")])
def test_who_does_not_wait_gets_an_error_at_once(problem):
    """A first start fails with what is wrong; a zygote that dies over it has one more try."""

    async def scenario():
        forking = Forking(problem, problem)
        with pytest.raises(type(problem)):
            await forking.acquire(never)
        return forking.forks

    assert play(scenario) == (2 if problem is LOST else 1)


def test_who_waits_has_a_worker_from_the_next_zygote():
    """While there is none nothing is forked: its child handler warms it at its own pace."""

    async def scenario():
        forking = Forking(LOST, LOST)
        acquiring = asyncio.create_task(forking.acquire(always))
        await settle()
        before = forking.forks
        forking.zygotes.lean.warmed.set()
        worker = await acquiring
        return before, worker.pid

    assert play(scenario) == (0, 3)


def test_who_waits_for_nothing_any_more_forks_nothing():
    """A session that was stopped while there was no zygote does not cost a process."""

    async def scenario():
        forking = Forking()
        wanted = [True]
        acquiring = asyncio.create_task(forking.acquire(lambda: bool(wanted)))
        await settle()
        wanted.clear()
        forking.zygotes.lean.warmed.set()
        with pytest.raises(ZygoteLost):
            await acquiring
        return forking.forks

    assert play(scenario) == 0


def test_as_many_are_forked_as_may_become_agents_together():
    """However many sessions an earlier daemon has left; one that is started now is the next."""

    async def scenario():
        forking = Forking()
        forking.starts = Starts(AT_ONCE)
        forking.zygotes.lean.warmed.set()
        forking.may_fork.clear()
        acquiring = [asyncio.create_task(forking.acquire(always)) for _ in range(9 * AT_ONCE)]
        await settle()
        waiting = forking.at_once
        first = asyncio.create_task(forking.acquire(never))
        await settle()
        forking.may_fork.set()
        await settle()
        forking.starts.over(1)
        served = await first
        for pid in range(2, 9 * AT_ONCE + 2):
            await settle()
            forking.starts.over(pid)
        workers = await asyncio.gather(*acquiring)
        return waiting, forking.most, served.pid, len(workers), forking.starts.facts().waiting

    assert play(scenario) == (AT_ONCE, AT_ONCE, AT_ONCE + 1, 9 * AT_ONCE, 0)


def test_a_fork_that_fails_leaves_its_place_to_the_next_one():
    """Who tries again waits for a turn like all others."""

    async def scenario():
        forking = Forking(ZygoteFailed("fork", "no"), ZygoteFailed("fork", "no"))
        forking.starts = Starts(1)
        forking.zygotes.lean.warmed.set()
        again = asyncio.create_task(forking.acquire(always))
        with pytest.raises(ZygoteFailed):
            await forking.acquire(never)
        return (await again).pid

    assert play(scenario) == 3


def test_spares_are_not_forked_while_there_is_no_zygote(monkeypatch):
    """Each fork would try to start one, whatever the back-off of its child handler says."""
    monkeypatch.setattr(module, "SPARE_RETRY_S", 0.0)

    async def scenario():
        forking = Forking(ZygoteFailed("preload", "no"))
        forking.spares_wanted = 1
        keeping = asyncio.create_task(forking.keep_spares())
        await settle()
        before = forking.forks
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        return before

    assert play(scenario) == 1


class Spare:
    """A spare that answers, is stopped, is mute, or ends over the question."""

    id, pid, pidfd, is_forked, has_litellm, hosts = "w-9", 9, -1, False, False, None

    def __init__(self, how):
        self.how, self.peer, self.has_ended, self.killed = how, how.encode(), how == "ended", []
        self.containment = SimpleNamespace(
            kill=lambda: self.killed.append("containment"), idle=lambda: None
        )

    def is_over(self):
        return self.has_ended

    def is_stopped(self):
        return self.how == "stopped"


class Asking:
    """A router that lets a spare answer as it does."""

    def __init__(self, spares):
        self.spares = {spare.peer: spare for spare in spares}

    def send(self, peer, _frame):
        spare = self.spares[peer]
        if spare.how == "lives":
            spare.ready.set_result(None)
        elif spare.how == "ends":
            spare.has_ended = True
            spare.ready.set_exception(Overloaded("it ended"))
        return True


def test_only_a_spare_that_answers_is_handed_out(monkeypatch):
    """One that hangs is killed and counted; one that has ended, or ends over it, is passed over."""
    monkeypatch.setattr(module, "SPARE_ANSWER_S", 0.01)

    async def scenario():
        forking = Forking()
        spares = [Spare(how) for how in ("ended", "stopped", "mute", "ends", "lives")]
        forking._spares.extend(spares)
        forking.router = Asking(spares)
        found = await forking.acquire(never)
        return spares.index(found), forking.hung, [spare.killed for spare in spares], forking.forks

    assert play(scenario) == (4, 2, [[], ["containment"], ["containment"], [], []], 0)


@pytest.mark.parametrize("wanted", [1, 0])
def test_a_spare_whom_nobody_waits_for_any_more_is_kept_or_ended(wanted):
    """It is asked whether it lives when the session that it was for is given up."""

    async def scenario():
        forking, spare = Forking(), Spare("mute")
        forking.spares_wanted = wanted
        forking._spares.append(spare)
        forking.router = Asking([spare])
        acquiring = asyncio.create_task(forking.acquire(never))
        await settle()
        acquiring.cancel()
        await asyncio.gather(acquiring, return_exceptions=True)
        return list(forking._spares) == [spare], spare.killed

    assert play(scenario) == ((True, []) if wanted else (False, ["containment"]))


# --- whom a worker may speak for ------------------------------------------------------------------

FOLDER = Path("/run/x")
FIRST, SECOND, LEFT, NEW = "w-1-aaaaaaaa11", "w-2-bbbbbbbb22", "w-3-cccccccc33", "w-4-dddddddd44"
"""Two agents, one that an earlier daemon left, and one whose fork has not returned."""
PIDS = {FIRST: 101, SECOND: 102, LEFT: 103, NEW: 0}
STRANGER = 999
BATCH = Batch(first=1, count=1, durable=True)


def announced(worker_id, session_id="s-1", incarnation=1, first=1):
    return Detached(
        worker_id=worker_id, session_id=session_id, incarnation=incarnation, first=first
    )


class Setting(WorkerPool):
    """A pool that the test sees into."""


@pytest.fixture
def setting():
    """A pool with these workers, which are no processes; ``failed`` is who was to be ended."""
    made = Setting(None, None, None, f"ipc://{FOLDER}/workers.sock", 0)
    made.failed = []
    for worker_id, pid in PIDS.items():
        worker = Worker(worker_id, SimpleNamespace(), pid, -1 if pid == 0 else 5, ready=None)
        worker.owner = SimpleNamespace(
            on_fail=lambda reason, pid=pid: made.failed.append((pid, reason))
        )
        worker.mark = None if pid == 0 else (f"s-{pid - 100}", 1)
        made._workers[worker.peer] = worker
    made._survivors[LEFT] = made._workers[LEFT.encode()]
    made.awaited = {"w-5-undecided": 105}
    return made


@pytest.mark.parametrize(
    ("peer", "pid", "frame"),
    [
        (FIRST, 101, BATCH),
        (FIRST, 101, IdleNotice()),
        (FIRST, 101, HostWanted(address=str(host_socket(FOLDER, FIRST, 7)))),
        (LEFT, 103, HostWanted(address=f"{FOLDER}/h-0123abcd")),
        (NEW, 104, Ready(pid=104)),
        ("its new name", 103, announced(LEFT, "s-3")),
        ("any name", 105, announced("w-5-undecided", "s-5")),
        ("any name", 106, announced("w-6-unknown", "s-6")),
    ],
    ids=repr,
)
def test_a_worker_speaks_for_itself(setting, peer, pid, frame):
    """By its connection and from its process; one nobody knows may call, to be asked to end."""
    setting.check(peer.encode(), pid, frame)


@pytest.mark.parametrize(
    ("peer", "pid", "frame"),
    [
        (FIRST, STRANGER, BATCH),
        (FIRST, 102, BATCH),
        (FIRST, None, BATCH),
        (FIRST, 0, BATCH),
        (NEW, 0, Ready(pid=0)),
        (NEW, 104, BATCH),
        ("any name", STRANGER, BATCH),
        ("any name", 101, BATCH),
        ("any name", STRANGER, announced(LEFT, "s-3")),
        ("any name", STRANGER, announced("w-5-undecided", "s-5")),
    ],
    ids=repr,
)
def test_nobody_speaks_for_another(setting, peer, pid, frame):
    """Not under its name, not for its agent, and not where its process is not known."""
    with pytest.raises(AccessDenied):
        setting.check(peer.encode(), pid, frame)


@pytest.mark.parametrize(
    ("peer", "pid", "frame"),
    [
        (FIRST, 101, announced(LEFT, "s-3")),
        (FIRST, 101, announced(SECOND, "s-2")),
        (FIRST, 101, announced(FIRST, "s-1")),
        (FIRST, 101, announced("w-5-undecided", "s-5")),
        (FIRST, 101, announced("w-6-unknown", "s-6")),
        (LEFT, 103, announced("w-6-unknown", "s-6")),
        (LEFT, 103, announced(LEFT, "s-6")),
    ],
    ids=repr,
)
def test_a_worker_calls_as_nobody_else_over_its_own_connection(setting, peer, pid, frame):
    """Nor as one that has lost this daemon: it breaks the contract, and its session goes on."""
    with pytest.raises(ProtocolError, match=r"agent w-\d-\w+") as caught:
        setting.check(peer.encode(), pid, frame)
    setting.refused(peer.encode(), pid, caught.value)

    assert [one for one, _ in setting.failed] == [pid]


@pytest.mark.parametrize(
    "address",
    [
        f"{FOLDER}/control.sock",
        "control.sock",
        "",
        "/etc/passwd",
        str(host_socket(FOLDER, SECOND, 7)),
        str(host_socket(FOLDER, FIRST, 7)) + "0",
        str(host_socket(FOLDER / "sub", FIRST, 7)),
        f"{FOLDER}/sub/../{host_socket(FOLDER, FIRST, 7).name}",
        f"{FOLDER}/h-0123abcd",
        f"{FOLDER}/h-aaaaaaaa٣٤",
        "x" * 100_000,
    ],
    ids=lambda address: ascii(address)[:60],
)
def test_a_worker_has_its_host_at_a_place_of_its_own(setting, address):
    """The daemon removes what is there afterwards, so it may be nobody else's."""
    with pytest.raises(ProtocolError, match="is no place of worker") as caught:
        setting.check(FIRST.encode(), 101, HostWanted(address=address))

    assert len(str(caught.value)) < 300


def test_who_is_no_agent_has_no_host(setting):
    """A spare has no calls."""
    setting._workers[FIRST.encode()].mark = None
    with pytest.raises(ProtocolError):
        setting.check(FIRST.encode(), 101, HostWanted(address=str(host_socket(FOLDER, FIRST, 1))))


@pytest.mark.parametrize(
    "changes", [{"session_id": "s-1"}, {"session_id": "s-3", "incarnation": 2}]
)
def test_an_agent_calls_for_the_session_that_it_has(setting, changes):
    """As it stands on the roll and in the journal."""
    with pytest.raises(ProtocolError):
        setting.check(b"any name", 103, announced(LEFT, **changes))


def test_a_worker_whose_own_frame_is_refused_is_ended(setting):
    """What it said is missing from now on; of a stranger nothing follows for anybody."""
    error = ProtocolError("wild")
    for peer, pid in ((FIRST, STRANGER), (FIRST, 102), ("any name", 101), ("any name", None)):
        setting.refused(peer.encode(), pid, error)
    before = list(setting.failed)
    setting.refused(FIRST.encode(), 101, error)

    assert before == []
    assert setting.failed == [(101, Other(detail="it broke the contract of the wire: wild"))]


def test_a_worker_that_floods_with_refused_frames_is_condemned_once(setting):
    """One line of the log and one order to end it, however much it says until then."""
    with capture_logs() as reported:
        for at in range(100):
            setting.refused(FIRST.encode(), 101, ProtocolError(f"wild {at}"))
        setting.refused(SECOND.encode(), 102, ProtocolError("wild, too"))

    lines = [(one["worker_id"], one["problem"]) for one in reported]
    assert lines == [(FIRST, "wild 0"), (SECOND, "wild, too")]
    assert [pid for pid, _ in setting.failed] == [101, 102]


def test_what_comes_for_a_finalized_worker_is_dropped(setting):
    """A message may hold several frames, and the first may be the last that is heard of it."""
    setting.receive(b"gone", Write(records=(), completed=(), number=1), ())


def finalized(monkeypatch, *, is_contained):
    """Return what is reported, in order, of a session whose process has ended, and of its litter.

    Its session hears of the end at once; the sweep behind it takes as long as it takes.
    """
    reported, gate = [], threading.Event()

    def sweep(_sids, _marks, _known):
        gate.wait()
        reported.append("swept")
        return 0

    async def nothing(*_given):
        return None

    async def scenario():
        zygote = SimpleNamespace(pids=frozenset())
        made = Setting(zygote, SimpleNamespace(pids=frozenset()), None, "ipc:///x/w.sock", 0)
        made.router = SimpleNamespace(drain=list, is_connected=lambda _peer: False)
        containment = SimpleNamespace(is_contained=is_contained, examine=nothing, close=nothing)
        worker = Worker("w-1", containment, 101, 5, ready=None)
        worker.mark, worker.hosts = ("s-1", 1), SimpleNamespace(end=nothing)
        worker.owner = SimpleNamespace(on_exit=lambda _record: reported.append("ended"))
        finalizing = asyncio.create_task(
            made._finalize(worker, ExitRecord(-9, pid=101, exited_at=1.0))
        )
        await settle()

        async def wait(session_id):
            await made.sweeper.swept(session_id)
            reported.append(f"{session_id} goes on")

        waits = [asyncio.create_task(wait(session_id)) for session_id in ("s-1", "s-2")]
        await settle()
        gate.set()
        await asyncio.gather(finalizing, *waits)
        return reported

    monkeypatch.setattr(sweeper, "sweep", sweep)
    return play(scenario)


def test_who_follows_a_dead_process_waits_for_the_sweep_behind_it(monkeypatch):
    """Who watches it does not, nor another session; nor anybody where a cgroup has ended all."""
    assert finalized(monkeypatch, is_contained=False) == [
        "ended",
        "s-2 goes on",
        "swept",
        "s-1 goes on",
    ]
    reported = finalized(monkeypatch, is_contained=True)
    assert reported == ["ended", "s-1 goes on", "s-2 goes on", "swept"]


def hosted():
    """Return a worker that may have tool hosts."""
    nobody = SimpleNamespace(pids=frozenset())
    pool = WorkerPool(SimpleNamespace(lean=nobody, pids=frozenset()), nobody, None, "ipc://x", 0)
    worker = Worker("w-1", Containment(None, "w-1", 0), 101, 5, ready=None)
    worker.hosts = pool._hosts_of(worker)
    return worker


def test_a_worker_that_has_ended_gets_no_tool_host():
    """It may have asked for one with its last word, which is read after its end."""
    worker = hosted()
    started = []

    def start(work, name):
        work.close()
        started.append(name)

    worker.hosts.spawn = start
    worker.has_ended = True
    worker.hosts.start("late")
    worker.has_ended = False
    worker.hosts.start("in time")

    assert started == ["host-in time"]


def test_a_finalized_worker_goes_without_a_collection():
    """Thousands that die at once would else stay in memory, with all that they printed."""
    worker = hosted()
    gone = weakref.ref(worker)
    gc.disable()
    try:
        worker.retire()
        del worker
        left = gone()
    finally:
        gc.enable()

    assert left is None


def test_only_agents_that_are_up_are_missed_in_the_registry(setting, tmp_path):
    """One that knows of no daemon takes itself out where it ends, a moment before it is gone."""
    setting.address, setting.grace_s = f"ipc://{tmp_path}/workers.sock", 60.0
    for one in (FIRST, SECOND):
        worker = setting._workers[one.encode()]
        worker.is_registered, worker.pid = one == SECOND, os.getpid()
    setting.register_again()

    assert registered_ids(tmp_path) == {SECOND}
