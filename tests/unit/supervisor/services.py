"""What a session needs of the rest of the daemon, without a process, a socket or a file.

``Services`` has a pool whose workers say what a test has them say, and the tree that it is given:
``Calls`` writes down what the tree is asked, a real ``TreeRuntime`` decides.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec

from cmdc_runtime.heartbeats import REBUILDING
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.wire.frames import ExitNotice, IdleNotice, Started, Terminate
from supervisor.adapters.journal.store import Health
from supervisor.core.exits import ExitRecord
from supervisor.core.session_tree import root_spec, session_path, session_spec
from supervisor.core.tree.messages import CallResult, Ending, Outcome
from supervisor.sessions.session import Session
from supervisor.sessions.tree_runtime import TreeRuntime

CLIENT = b"client"
PID_FIRST = 2**22 + 1
"""No process has such a number."""
TURNS = 20
"""Of the loop: more than any chain of callbacks here takes."""


class Containment:
    """The surroundings of a worker, in which nothing happens."""

    slot, brings_slot = 0, True

    def __init__(self):
        self.expected = []

    def assign(self, pid, session_id, incarnation, policy):
        pass

    take_over = assign

    def expect(self, pid, limit_s):
        self.expected.append(limit_s)

    def kill(self):
        pass


class Worker:
    """A process that does what the test says; ``sent`` is what it was sent."""

    def __init__(self, pid):
        self.id, self.pid, self.pidfd = f"w-{pid}", pid, -1
        self.containment = Containment()
        self.hosts = SimpleNamespace(max_open_files=None)
        self.servers_wanted = set()
        self.owner = self.mark = None
        self.has_ended = self.is_forked = self.is_detached = False
        self.peer = b"w-%d" % pid
        self.sent, self.signals = [], []

    def is_over(self):
        return self.has_ended

    def is_stopped(self):
        return False

    def says(self, frame):
        self.owner.on_frame(frame, b"")

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


class WorkerPool:
    """Hands out workers, at once or when the test says so."""

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
        self.workers.append(Worker(PID_FIRST + len(self.workers)))
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


class Hub:
    """No events at all."""

    def taken_index(self, session_id):
        return 0

    def last_index(self, session_id):
        return 0

    async def flushed(self, session_id):
        pass


class Journal:
    """A journal that keeps nothing but what it was asked."""

    def __init__(self):
        self.asked = []
        self.answers = {}
        """By the class of an operation, a function of it that returns its awaitable."""
        self.health = Health()

    def write(self, operation):
        self.asked.append(operation)
        answer = self.answers.get(type(operation))
        if answer is not None:
            return answer(operation)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    read = write


class Calls:
    """A runtime that writes down what it is asked and decides nothing."""

    def __init__(self):
        self.made = []

    def up(self, ref, handle=None):
        self.made.append("up")

    def exited(self, ref, reason, ending):
        self.made.append(f"exited: {reason} ({ending})")

    def fail(self, ref, fail_reason):
        self.made.append(f"fail: {fail_reason}")

    def hibernate_child(self, ref, call, why, grace_s):
        self.made.append("hibernate")

    def wake_child(self, ref, call):
        self.made.append("wake")

    def terminate_child(self, path, child_id, call, why, grace_s):
        self.made.append(f"terminate {child_id}: {why} within {grace_s} s")


class Services:
    """The rest of the daemon as one session sees it."""

    def __init__(self, runtime=None):
        self.runtime = runtime or Calls()
        self.pool, self.hub, self.journal = WorkerPool(), Hub(), Journal()
        self.flush_barrier = None  # nothing is published here, so nothing is asked
        self.is_leaving = False
        self.state_dir = ""
        self.readers = asyncio.Semaphore(1)
        self.downs, self.answers, self.forgotten = [], [], []
        self.sleeps = 0

    def answer(self, client, frame):
        self.answers.append((client, frame))

    def notify(self, session, departed, record):
        self.downs.append(departed)

    def record_hibernation(self, session):
        self.sleeps += 1

    def forget(self, session, reason):
        self.forgotten.append(reason)

    @property
    def notices(self):
        """The notices as (reason, incarnation, whether another process follows)."""
        return [(one.reason, one.ref.generation, one.restarting) for one in self.downs]

    @property
    def worker(self):
        """The newest worker."""
        return self.pool.workers[-1]


class Zygote:
    """The child handler of a zygote that never gets warm, and is never missed."""

    def launch(self, ref):
        pass

    def ask(self, ref, reason):
        self.runtime.exited(ref, Normal(), Ending.NORMAL)

    def departed(self, departed):
        pass


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
    return Session(services, spec(session_id, **policy), session_path(above, session_id), 0)


def services_with_tree():
    """Return services and its real tree, which has begun."""
    zygote = Zygote()
    services = Services(TreeRuntime(root_spec(zygote), lambda _report: None))
    zygote.runtime = services.runtime
    services.runtime.begin()
    return services


def begin(session):
    """Give a session to the tree of its services."""
    child = session_spec(
        session.spec,
        session,
        incarnation=session.incarnation,
        restarts=session.restarts,
        has_lived=session.was_up,
    )
    session.services.runtime.start_child(session.path[:-1], child, session.begun, session.over)


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

    return asyncio.run(bounded())


NO_PROCESS = CallResult(Outcome.NO_PROCESS)
