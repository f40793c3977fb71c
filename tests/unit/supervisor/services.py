"""The daemon around a session, without a process, a socket or a file.

``Services`` are the daemon's own ``Sessions``, with its own tree, hub, monitors and store. What is
played stands at the border: a process does what a test has it do, and a zygote, the disk's thread,
ZeroMQ and the clients are nobody. ``AskedRuntime`` writes down what the tree is asked.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.heartbeats import REBUILDING
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.wire.frames import Deliver, ExitNotice, IdleNotice, Started, Terminate
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.opening import MemoryStore
from supervisor.adapters.journal.operations import CreateSession, Write
from supervisor.adapters.journal.store import Health
from supervisor.adapters.self_check import FlushBarrier
from supervisor.core.exits import ExitRecord
from supervisor.core.session_tree import root_spec, session_path
from supervisor.core.tree import messages
from supervisor.core.tree.messages import CallResult, Outcome
from supervisor.processes.worker import Worker
from supervisor.sessions.assignment import spec_bytes
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.pending import PendingCommands
from supervisor.sessions.session import Session
from supervisor.sessions.sessions import Sessions
from supervisor.sessions.tree_runtime import TreeRuntime, ZygoteChild

CLIENT = b"client"
PID_FIRST = 2**22 + 1
"""No process has such a number."""
TURNS = 20
"""Of the loop: more than any chain of callbacks here takes."""
SESSIONS_MAX = 1_000

# --- processes ------------------------------------------------------------------------------------


class PlayedContainment:
    """The surroundings of a played process, in which nothing happens."""

    slot, brings_slot = 0, True

    def __init__(self):
        self.expected = []
        self.worker = None

    def assign(self, pid, session_id, incarnation, policy):
        pass

    take_over = assign

    def expect(self, pid, limit_s):
        self.expected.append(limit_s)

    def kill(self):
        pass

    async def close(self):
        pass


class PlayedWorker(Worker):
    """A process that does what the test says; ``sent`` is what it was sent."""

    def __init__(self, pid):
        super().__init__(f"w-{pid}", PlayedContainment(), pid, pidfd=-1, ready=None)
        self.hosts = SimpleNamespace(max_open_files=None)
        self.sent, self.signals = [], []

    def is_over(self):
        return self.has_ended

    def is_stopped(self):
        return False

    def says(self, frame):
        self.owner.on_frame(frame, ())

    def ends(self, status=0, step=None):
        asked = next((one for one in self.sent if isinstance(one, Terminate)), None)
        if status == 0 and asked is not None:  # it obeys, and says so
            reason = asked.reason
            words = Normal() if reason == "normal" else Shutdown(detail=reason)
            self.says(ExitNotice(reason=words))
        self.has_ended = True
        record = ExitRecord(status, pid=self.pid)
        if step is not None:
            record.state, record.turns = REBUILDING, step
        self.owner.on_exit(record)


class PlayedPool:
    """Hands out played processes, at once or when the test says so."""

    folder = Path("/nowhere")

    def __init__(self):
        self.workers, self.released = [], []
        self.problems = []
        """What the next workers that are acquired fail with."""
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.is_swept = asyncio.Event()
        self.is_swept.set()
        self.sweeper = self

    async def swept(self, session_id):
        await self.is_swept.wait()

    async def acquire(self, is_waiting, *, has_litellm=False):
        await self.is_open.wait()
        if self.problems:
            raise self.problems.pop(0)
        self.workers.append(PlayedWorker(PID_FIRST + len(self.workers)))
        return self.workers[-1]

    def release(self, worker):
        self.released.append(worker)

    def send(self, worker, frame):
        worker.sent.append(frame)
        return not worker.has_ended

    def signal(self, worker, number):
        worker.signals.append(number)

    def kill(self, worker):
        worker.signals.append(9)


class PlayedZygote:
    """A zygote that is warm when the test says so, or fails."""

    def __init__(self, problem=None):
        self.problem = problem
        self.may_warm = asyncio.Event()
        self.is_warm = False

    async def warm(self):
        await self.may_warm.wait()
        if self.problem is not None:
            raise self.problem
        self.is_warm = True
        return SimpleNamespace(pid=7)


# --- the journal, the hub, the tree ---------------------------------------------------------------


_opened = []
"""Stores that the test under way has opened; ``play`` closes them."""


class LoopJournal:
    """The journal in memory, whose store the loop drives itself: a thread would need real time.

    ``asked`` has each operation. ``answers`` has what the disk says in place of the store: by the
    class of an operation, a function of it that returns its awaitable.
    """

    def __init__(self):
        self.asked, self.answers, self.health = [], {}, Health()
        self._store = None

    def write(self, operation):
        self.asked.append(operation)
        answer = self.answers.get(type(operation))
        if answer is not None:
            return answer(operation)
        done = asyncio.get_running_loop().create_future()
        try:
            done.set_result(self._perform(operation))
        except CmdcError as refusal:  # it has changed nothing
            done.set_exception(refusal)
        return done

    read = write

    async def close(self):
        if self._store is not None:
            _opened.remove(self._store)
            self._store.close()

    def _perform(self, operation):
        if self._store is None:
            self._store = MemoryStore()
            self._store.open()
            _opened.append(self._store)
        if not isinstance(operation, Write):
            return self._store.perform(operation)
        self._store.begin()
        try:
            return self._store.perform(operation)
        finally:
            self._store.commit()


class UnheardHub(Hub):
    """The hub with a socket to which nobody is connected, so that all it sends is lost."""

    def __init__(self, journal):
        socket = SimpleNamespace(setsockopt=lambda _option, _value: None, close=lambda: None)
        super().__init__(SimpleNamespace(socket=lambda _type: socket), journal)
        self._tick()  # as ``bind`` does, which has a descriptor besides


class NoRouter:
    """Answers the flush barrier at once: nothing is on its way to anybody."""

    async def ask_router(self):
        pass

    def close(self):
        pass


class AskedRuntime(TreeRuntime):
    """The tree's runtime without a tree: writes down what it is asked, and decides nothing."""

    def __init__(self):
        super().__init__(root_spec(None), lambda _report: None)
        self.made = []

    def _now_s(self):
        return 0.0

    def _take(self, given):
        self.made.append(_in_words(given))


def _in_words(given):
    match given:
        case messages.Up():
            return "up"
        case messages.ChildExited(reason=reason, ending=ending):
            return f"exited: {reason} ({ending})"
        case messages.Fail(reason=reason):
            return f"fail: {reason}"
        case messages.HibernateChild():
            return "hibernate"
        case messages.WakeChild():
            return "wake"
        case messages.TerminateChild(child=child, why=why, deadline_s=grace_s):
            return f"terminate {child}: {why} within {grace_s} s"
    raise AssertionError(given)


# --- the sessions ---------------------------------------------------------------------------------


class Services(Sessions):
    """The sessions of a daemon; what leaves them is written down."""

    def __init__(self, runtime=None, pool=None):
        journal = LoopJournal()
        barrier = FlushBarrier(NoRouter())
        hub = UnheardHub(journal)
        pool = PlayedPool() if pool is None else pool
        super().__init__(runtime or AskedRuntime(), pool, hub, journal, barrier, SESSIONS_MAX)
        self.downs, self.answers, self.forgotten = [], [], []
        self.sleeps = 0
        sent = lambda client, frame: self.answers.append((client, frame))  # noqa: E731 - a method
        self.control = SimpleNamespace(send=sent, send_encoded=sent)
        self.monitors = MonitorService(journal, self.look_up, lambda _client, _frame: False)

    def notify(self, session, ended):
        self.downs.append(ended)
        super().notify(session, ended)

    def record_hibernation(self, session):
        self.sleeps += 1
        super().record_hibernation(session)

    def forget(self, session, reason):
        self.forgotten.append(reason)
        super().forget(session, reason)

    def write_down(self, session):
        """Have a session in the journal, and its stream open, as it is before it begins."""
        row = SessionRow(
            session_id=session.id,
            created_ms=session.created_ms,
            spec=spec_bytes(session.spec),
            parent_id=session.spec.parent_id,
            group_id=session.spec.group_id,
            incarnation=1,
        )
        self.journal.write(CreateSession(row)).result()
        events_max = session.spec.supervision.event_buffer_size
        self.hub.open_channel(session.id, events_max, EventIndex(0))

    @property
    def notices(self):
        """The notices as (reason, incarnation, whether another process follows)."""
        return [(one.reason, one.ref.generation, one.restarting) for one in self.downs]

    @property
    def worker(self):
        """The newest worker."""
        return self.pool.workers[-1]


class PlayedOwner:
    """A session that writes down what it hears of its agent."""

    id = "s"

    def __init__(self):
        self.replies, self.early, self.ended, self.lean, self.ups = [], [], [], [], 0
        self.pending = PendingCommands(self.id)

    def looks(self, *command_ids):
        """Have asked it how things are, under these ids."""
        for one in command_ids:
            question = Deliver(id=one, body=msgspec.Raw(b"\xc0"), durable=False)
            self.pending.add(CLIENT, question, is_sent=True, looks=True)

    def reply(self, command_id, frame):
        self.replies.append((command_id, frame))

    def reply_early(self, command_id, frame):
        self.early.append((command_id, frame))

    def process_up(self, _process):
        self.ups += 1

    def process_lean(self, process):
        self.lean.append(process)

    def process_ended(self, _process, record):
        self.ended.append(record)


def begun_runtime(runtime_of=TreeRuntime):
    """Return the daemon's tree, which has begun; its zygote never gets warm."""
    zygote = ZygoteChild(PlayedZygote(), lambda: None)
    zygote.runtime = runtime = runtime_of(root_spec(zygote), lambda _report: None)
    runtime.begin()
    return runtime


def services_with_tree():
    """Return services and their real tree."""
    return Services(begun_runtime())


def spec(session_id="s", **policy):
    parent_id = policy.pop("parent_id", None)
    return StartSession(
        session_id=session_id,
        supervision=Supervision(**policy),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        parent_id=parent_id,
    )


def session_of(services, session_id="s", parent=None, **policy):
    """Return a session that is not in the tree yet."""
    above = None if parent is None else parent.path
    if parent is not None:
        policy["parent_id"] = parent.id
    session = Session(services, spec(session_id, **policy), session_path(above, session_id), 0)
    services.write_down(session)
    return session


def begin(session):
    """Give a session to the tree of its services."""
    session.services.live[session.id] = session
    session.services.begin(session)


async def settle():
    """Return when all that can happen without a timer has happened."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def up(session):
    """Return the worker of a session that has just come up."""
    await settle()
    worker = session.services.worker
    worker.says(Started())
    await settle()
    return worker


async def asleep(session):
    """Have a session that is up give its process up."""
    worker = session.services.worker
    worker.says(IdleNotice())
    worker.ends()
    await settle()


def play(scenario):
    """Return what a coroutine function returns."""

    async def bounded():
        async with asyncio.timeout(10.0):
            return await scenario()

    try:
        return asyncio.run(bounded())
    finally:
        while _opened:
            _opened.pop().close()


NO_PROCESS = CallResult(Outcome.NO_PROCESS)
