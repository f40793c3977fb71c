"""Plays cases with the daemon's own runtime over real processes; the stage only looks on.

``TreeRuntime`` holds the tree and its timers. The handler of a child is a ``Session`` with all that
is behind it: acquiring, asking, SIGTERM, SIGKILL, the sweep, the exit status and its judge. What is
noted comes from calls that pass a handler, from what monitors get, from the processes and from the
kernel: so what the runtime leaves out, doubles or does too early is seen. Time is that of
``clock``.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from structlog.testing import capture_logs

from cmdc_runtime.process import EXIT_BAD_OPTIONS
from cmdc_runtime.requests import StartSession, Supervision
from supervisor.core.tree.messages import (
    Ignored,
    KillSupervisor,
    Label,
    Reconfigure,
    Ref,
    Stop,
    SupervisorEnded,
    SupervisorPhase,
    SupervisorUp,
    Up,
)
from supervisor.core.tree.specs import SupervisorSpec
from supervisor.sessions.session import Session
from supervisor.sessions.tree_runtime import TreeRuntime
from tests.conformance.audit import named
from tests.conformance.clock import BOUND_S, VirtualLoop
from tests.conformance.script import ENDS, EXIT_CODE
from tests.conformance.stage import Call, Stage, call_of
from tests.conformance.stage_services import StageServices

FAR_S = 120.0
"""Nothing that a case waits for is further away."""
MOMENT_S = 0.001
"""It is over when nothing is under way."""
PATIENT = Supervision(start_timeout=86_400.0, unresponsive_after=86_400.0)
"""A child's start is timed by its specification alone, and nothing of it beats."""


class Watched(TreeRuntime):
    """The daemon's runtime of the tree, looked at; what it does it does by itself."""

    def __init__(self, spec, stage):
        super().__init__(spec, stage.saw_report, chance=lambda: 0.0)  # no back-off is spread
        self._stage = stage

    def up(self, ref, handle=None):
        extra = self._stage.saw_up(ref)
        if extra is None:
            super().up(ref, handle)
        else:  # what the daemon's own children never say
            self._take(Up(ref, handle, extra))

    def exited(self, ref, reason, ending, record=None):
        if self._stage.saw_end(ref, reason):
            super().exited(ref, reason, ending, record)
        else:  # the daemon's own children never refuse to start
            self._take(Ignored(ref))

    def _step(self, given):
        self._stage.before_step()
        return super()._step(given)

    def _take(self, given):
        super()._take(given)
        if not self._is_stepping:
            self._stage.after_step()

    def _perform(self, effect):
        super()._perform(effect)
        self._stage.performed(effect)


class Handler:
    """The daemon's handler of one child, looked at."""

    def __init__(self, stage, place, script):
        self.script = script
        self._stage = stage
        spec = StartSession(
            session_id="/".join(place),
            supervision=PATIENT,
            agent=msgspec.Raw(b"\xc0"),
            carries_code=False,
        )
        self._session = Session(stage.services, spec, place, 0)
        stage.services.write_down(self._session)

    def launch(self, ref):
        self._stage.saw_launch(ref, self.script)
        self._session.launch(ref)

    def ask(self, ref, reason):
        self._stage.write("ask", named(ref), reason)
        self._session.ask(ref, reason)

    def terminate(self, ref):
        self._stage.write("term", named(ref))
        self._session.terminate(ref)

    def kill(self, ref, fail_reason):
        self._stage.write("kill", named(ref), fail_reason)
        self._session.kill(ref, fail_reason)

    def is_over(self):
        return self._session.is_over()

    def on_ended(self, ended):
        self._session.on_ended(ended)


class ProcStage(Stage):
    """A stage of processes, played in an event loop that runs while a case waits."""

    is_real = True

    def __init__(self, fork_server, containments, bound_s=BOUND_S):
        super().__init__()
        self.bound_s = bound_s
        self._loop = VirtualLoop(self._is_quiet, bound_s)
        self._stack = contextlib.ExitStack()
        self._entries = self._stack.enter_context(capture_logs())
        self._news = asyncio.Event()
        self._failure = None
        self._processes = {}
        self._scripts = {}
        self.services = self._do(lambda: StageServices(fork_server, containments, self))
        self.runtime = None

    @property
    def tree(self):
        """The tree as the runtime has it."""
        return None if self.runtime is None else self.runtime.tree

    # --- what a case does -------------------------------------------------------------------

    def open(self, spec):
        for one in spec.children:
            self.audit.expects(one)
        self.begun_s = self.now()
        self.runtime = self._do(lambda: Watched(self._posted(spec, ()), self))
        self.services.runtime = self.runtime
        self._do(self.runtime.begin)
        return self

    def call(self, name, *given, path=(), **more):
        call = Call(name, asked_s=self.now())
        if name == "start_child":
            self.audit.expects(given[0], path)
        self._do(lambda: self._give(name, given, path, more.get("stop", Stop()), call))
        return call

    def _give(self, name, given, path, stop, call):
        """Ask the runtime as the daemon does; what it has no call for is an input of its tree."""

        def answered(answer):
            with self._guard():
                self.replied(call, answer)

        runtime, (what, *_) = self.runtime, given
        left_s = None if stop.deadline_s is None else stop.deadline_s - self.now()
        match name:
            case "start_child":
                runtime.start_child(path, self._posted_child(what, path), answered)
            case "terminate_child":
                runtime.terminate_child(path, what, answered, stop.why, left_s)
            case "hibernate_child" if left_s is not None:
                runtime.hibernate_child(Ref(path, what, 0), answered, stop.why, left_s)
            case "hibernate_child":
                runtime._take(call_of(name, path, what, answered, stop))
            case _:
                runtime._take(call_of(name, path, what, answered))

    def begin_stop(self, why="shutdown", within_s=None):
        if within_s is not None:
            self._do(lambda: self.runtime.stop(why, within_s))
        else:  # the daemon's own stop has a bound
            self._do(lambda: self.runtime._take(Stop(why, None)))

    def kill_supervisor(self, path=()):
        self._do(lambda: self.runtime._take(KillSupervisor(path)))

    def reconfigure(self, spec, path=()):
        self._do(lambda: self.runtime._take(Reconfigure(path, self._posted(spec, path))))
        for one in spec.children:
            self.audit.expects(one, path)

    def has_ended(self):
        return self.runtime.ended.done()

    def order(self, process, how):
        if how == "kill":
            process.send_signal(signal.SIGKILL)
        else:
            process.say("die", *_leaving(how))

    def process_of(self, name, path=()):
        """Return the process of a child, when there is one."""
        ref = self.audit.alive[(*path, name)]
        self.wait(lambda: ref in self._processes, f"the process of {named(ref)}")
        return self._processes[ref]

    def _posted(self, spec, path):
        children = tuple(self._posted_child(one, path) for one in spec.children)
        return replace(spec, children=children)

    def _posted_child(self, spec, path):
        place = (*path, spec.id)
        if isinstance(spec.start, SupervisorSpec):
            return replace(spec, start=self._posted(spec.start, place))
        return replace(spec, start=Handler(self, place, spec.start))

    # --- time -------------------------------------------------------------------------------

    def now(self):
        return self._loop.time()

    def wait(self, condition, what):
        try:
            self._run(self._wait(condition))
        except TimeoutError:
            raise AssertionError(f"{what} never came: {self.story_of_all()}") from None

    def pass_time(self, seconds):
        self._run(asyncio.sleep(seconds))  # tidy: of the stage's clock

    def settle(self):
        """Nothing more: what happens, happens by itself."""

    async def _wait(self, condition):
        async with asyncio.timeout(FAR_S):
            while self._failure is None and not condition():
                self._news.clear()
                await self._news.wait()

    def _do(self, work):
        """Do something in the loop, as the daemon does everything."""

        async def done():
            return work()

        return self._run(done())

    def _run(self, work):
        found = self._loop.run_until_complete(work)
        if self._failure is not None:
            raise self._failure
        return found

    def _is_quiet(self):
        return all(process.is_at_rest() for process in self.services.wire.processes.values())

    # --- what is seen -----------------------------------------------------------------------

    def write(self, what, who, fact=None):
        super().write(what, who, fact)
        self._news.set()

    @contextlib.contextmanager
    def _guard(self):
        """Let a rule that is broken fail the case, and not the daemon's code that broke it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again by ``_run``
            self._failure = self._failure or error
        self._news.set()

    def saw_launch(self, ref, script):
        """A handler is to start a process: no other one of the child may live."""
        with self._guard():
            self.audit.launched(ref)
            self.write("launch", named(ref))
            for earlier, process in self._processes.items():
                is_same = (earlier.path, earlier.child) == (ref.path, ref.child)
                assert not is_same or process.has_ended, f"{named(ref)} beside {named(earlier)}"
        self._scripts["/".join((*ref.path, ref.child)), ref.generation] = ref, script

    def life_of(self, process, name, generation):
        """A process becomes a child: return what it is to do."""
        ref, script = self._scripts[name, generation]
        self._processes[ref] = process
        self._news.set()
        life = script.life(generation)
        sent = asdict(life) | {"end": _leaving(life.end), "exit_code": EXIT_CODE}
        sent["hopeless"] = EXIT_BAD_OPTIONS
        return sent | ({"stop": _leaving(life.stop)} if life.stop in ENDS else {})

    def heard(self, what, process, fact):
        """A process said something of itself."""
        (ref,) = [ref for ref, one in self._processes.items() if one is process]
        self.write(what, named(ref), fact)

    def saw_up(self, ref):
        """The runtime learns that a process is ready; return what that said beside."""
        process = self._processes[ref]
        with self._guard():
            self.audit.due_back.discard((*ref.path, ref.child))
            self.write("up", named(ref), process.extra or None)
        return process.extra or None

    def saw_end(self, ref, reason):
        """The runtime learns of an end; False: it is that of one that wants no process."""
        process = self._processes.get(ref)
        has_ignored = process is not None and process.has_ignored
        with self._guard():
            assert process is None or process.has_ended, f"{named(ref)} lives, and its end comes"
            self.audit.ended(ref)
            self.write("ignored" if has_ignored else "exit", named(ref), reason)
        return not has_ignored

    def saw_down(self, ended):
        with self._guard():
            self.audit.delivered(ended)
            self.write("down", named(ended.ref), ended)

    def saw_report(self, report):
        with self._guard():
            assert report.label is not Label.UNEXPECTED, f"news of nobody: {report.context}"
        self.write("report", str(report.label), report)

    def performed(self, effect):
        """The runtime has done what the tree wants; nobody else reports these two."""
        match effect:
            case SupervisorUp(path=path):
                self.write("sup_up", "/".join(path))
            case SupervisorEnded(path=path):
                self.audit.stopping.discard(path)
                self.write("sup_end", "/".join(path), effect)

    def before_step(self):
        self.audit.stopping = {
            path
            for path, one in self.tree._supervisors.items()
            if one.phase is SupervisorPhase.STOPPING
        }

    def after_step(self):
        """Compare the timers that run in the loop with those that the tree has set."""
        with self._guard():
            assert self._timers() == Counter(
                (path, name, kind)
                for path, one in self.tree._supervisors.items()
                for name, child in one.children.items()
                for kind in child.timers
            )

    def _timers(self):
        loop, due = self._loop, self.runtime._due
        handles = (one for one in (*loop._scheduled, *loop._ready) if one._callback == due)
        return Counter(tuple(one._args[0]) for one in handles if not one.cancelled())

    # --- its end ----------------------------------------------------------------------------

    def is_alone(self, *pids):
        """Wait until no process of these sessions is left, though no time may pass for that."""
        self.pass_time(MOMENT_S)
        until_s = time.monotonic() + self.bound_s
        while any(_is_group(pid) for pid in pids):
            assert time.monotonic() < until_s, f"left: {pids}"
            os.sched_yield()

    def close(self):
        try:
            if self.runtime is not None and not self.has_ended():
                self.stop(within_s=0.2)
            self._run(self._close_services())
            self.audit.is_over()
            assert self.runtime is None or self._timers() == Counter()
            self.is_alone(*(process.pid for process in self.services.wire.processes.values()))
            assert [entry for entry in self._entries if entry.get("exc_info")] == []
        finally:
            self._give_back()

    async def _close_services(self):
        async with asyncio.timeout(FAR_S):
            await self.services.pool.close()
            await self.services.journal.close()

    async def _end_tasks(self):
        self.services.pool.reaper.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _give_back(self):
        """End what a broken case has left."""
        for process in self.services.wire.processes.values():
            if process.channel.fileno() >= 0:
                self._loop.remove_reader(process.channel)
        self._loop.run_until_complete(self._end_tasks())
        for process in self.services.wire.processes.values():
            process.reap()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._stack.close()


def _leaving(how):
    status, word, _ = ENDS[how]
    return status, [word] if word else []


def _is_group(pid):
    """Say whether a group has a living process; one that is only not yet waited for is none."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return any(_is_member(entry, pid) for entry in Path("/proc").glob("[0-9]*/stat"))


def _is_member(entry, group):
    try:
        stat = entry.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    state, _, its_group = stat.rpartition(")")[2].split()[:3]
    return int(its_group) == group and state not in "ZX"
