"""The zygote and its daemon's side of it: warm, fork, lose, close."""

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.prctl import refusal
from supervisor.adapters import zygote as module
from supervisor.adapters.orphans import reap_adopted
from supervisor.adapters.zygote import Zygote, ZygoteFailed, ZygoteLost, ZygoteOptions

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
WAIT_S = 10.0
GOOD_REPORT = (HERE / "light_preload.py").read_text()


@pytest.fixture(autouse=True)
def import_path(monkeypatch, tmp_path):
    """Let zygote and children import this folder's modules and those that a test writes."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{tmp_path}")
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path))


@asynccontextmanager
async def light_zygote(on_lost=None, **options):
    zygote = Zygote(
        ZygoteOptions(**{"preload": "light_preload", "needs": (), **options}), on_lost=on_lost
    )
    try:
        yield zygote
    finally:
        await zygote.close()


def fork(zygote, do, **boot):
    return zygote.fork({"do": do, **boot}, module="zygote_children")


def end(child):
    child.send_signal(signal.SIGKILL)
    assert has_ended(child.pidfd)
    child.close()


def has_ended(pidfd, wait_s=WAIT_S):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(wait_s * 1e3))


def until(is_true):
    """Poll a condition of the operating system."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # tidy: polls the operating system


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


async def failure(tmp_path, preload, **options):
    """Return how a zygote fails whose preload module has this text."""
    (tmp_path / "odd_preload.py").write_text(preload)
    async with light_zygote(preload="odd_preload", **options) as zygote:
        with pytest.raises(ZygoteFailed) as caught:
            await zygote.warm()
    return caught.value.stage, caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("needs", [(), ("litellm",)], ids=["lean", "full"])
def test_the_real_zygote_forks_children_that_have_what_they_need(tmp_path, needs):
    """Everything slow is done before the fork, and nothing unsafe to fork is left."""

    async def scenario():
        zygote = Zygote(ZygoteOptions(needs=needs))
        try:
            report = await zygote.warm()
            child = await fork(zygote, "write_facts", path=str(tmp_path / "facts"))
            assert has_ended(child.pidfd)
            child.close()
            return report
        finally:
            await zygote.close()

    report = asyncio.run(scenario())
    facts = json.loads((tmp_path / "facts").read_text())

    assert report.problems == ()
    assert report.warm_ms > 0
    assert set(report.versions) == set(needs)
    assert facts["threads"] == 1
    assert {"workers.worker", "zmq", *needs} <= set(facts["modules"])
    assert ("litellm" in facts["modules"]) == ("litellm" in needs)
    assert (report.huge_mib > 0) == (refusal() == "")


@pytest.mark.slow
def test_the_real_zygote_learns_the_sdk_of_mcp(tmp_path):
    """It stays safe to fork, keeps its process, and a child has what it would import itself."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")

    async def scenario():
        zygote = Zygote()
        try:
            before = (await zygote.warm()).pid
            await zygote.learn("mcp")
            child = await fork(zygote, "write_facts", path=str(tmp_path / "facts"))
            assert has_ended(child.pidfd)
            child.close()
            return before == zygote.pid
        finally:
            await zygote.close()

    assert asyncio.run(scenario())
    facts = json.loads((tmp_path / "facts").read_text())
    assert facts["threads"] == 1
    assert "workers.mcp.connection" in facts["modules"]


def test_what_a_zygote_has_learned_the_next_one_has(tmp_path):
    """Forks wait while it learns; what is learned twice is imported once."""
    (tmp_path / "lesson.py").write_text("import time; time.sleep(0.2)")

    async def scenario():
        lost = asyncio.Event()
        async with light_zygote(on_lost=lambda _error: lost.set()) as zygote:
            await zygote.warm()
            learning = asyncio.create_task(zygote.learn("lesson"))
            await asyncio.sleep(0)
            children = [await fork(zygote, "write_facts", path=str(tmp_path / "first"))]
            assert learning.done()
            await learning
            await zygote.learn("lesson")
            os.kill(zygote.pid, signal.SIGKILL)
            await lost.wait()
            children.append(await fork(zygote, "write_facts", path=str(tmp_path / "second")))
            for child in children:
                assert has_ended(child.pidfd)
                child.close()

    asyncio.run(scenario())
    for name in ("first", "second"):
        assert "lesson" in json.loads((tmp_path / name).read_text())["modules"]


@pytest.mark.parametrize(
    ("lesson", "error", "message"),
    [
        pytest.param("import no_such_part", ZygoteFailed, "no_such_part", id="missing"),
        pytest.param("1 / 0", ZygoteFailed, "ZeroDivisionError", id="raises"),
        pytest.param("import os; os._exit(3)", ZygoteLost, "has ended", id="ends"),
        pytest.param("import time; time.sleep(60)", ZygoteLost, "not loaded in", id="hangs"),
    ],
)
def test_what_cannot_be_learned_costs_one_zygote(tmp_path, lesson, error, message):
    """The next one is without it, and forks."""
    (tmp_path / "lesson.py").write_text(lesson)

    async def scenario():
        async with light_zygote(warm_s_max=WAIT_S if error is ZygoteFailed else 1.0) as zygote:
            await zygote.warm()
            with pytest.raises(error, match=message):
                await zygote.learn("lesson")
            child = await fork(zygote, "write_facts", path=str(tmp_path / "facts"))
            assert has_ended(child.pidfd)
            child.close()

    asyncio.run(scenario())
    assert "lesson" not in json.loads((tmp_path / "facts").read_text())["modules"]


def test_a_child_runs_the_named_module_below_the_zygote_and_without_the_main_module(tmp_path):
    """The target is a name and a flat dict; the script that runs the daemon stays out of it."""

    async def scenario():
        async with light_zygote() as zygote:
            child = await fork(zygote, "write_facts", path=str(tmp_path / "facts"), n=1, x=0.5)
            assert has_ended(child.pidfd)
            child.close()
            return child.pid, zygote.pid

    pid, zygote_pid = asyncio.run(scenario())
    facts = json.loads((tmp_path / "facts").read_text())

    assert (facts["pid"], facts["ppid"]) == (pid, zygote_pid)
    assert (facts["boot"]["n"], facts["boot"]["x"]) == (1, 0.5)
    assert facts["main"] is None
    assert "pytest" not in facts["modules"]


@pytest.mark.parametrize(
    ("preload", "stage", "message"),
    [
        pytest.param("import no_such_part", "preload", "named 'no_such_part'", id="import"),
        pytest.param("import os; os._exit(3)", "preload", "its stderr says why", id="exit"),
        pytest.param(
            GOOD_REPORT + "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "preload",
            "2 threads run",
            id="thread",
        ),
        pytest.param(
            GOOD_REPORT + "ORIGIN = '/elsewhere/workers'",
            "preload",
            "/elsewhere/workers was imported",
            id="another package",
        ),
    ],
)
def test_a_preload_that_cannot_serve_is_refused_with_the_reason(tmp_path, preload, stage, message):
    """What is wrong with it is said by the zygote itself, or by how it ended."""
    found = asyncio.run(failure(tmp_path, preload))

    assert found[0] == stage
    assert message in found[1]


def test_a_needed_module_that_is_missing_is_named_with_the_preloads_own_words(tmp_path):
    """Without litellm the zygote is of no use, and the preload knows why it is not there."""
    preload = GOOD_REPORT.replace("(origin=ORIGIN)", "(origin=ORIGIN, problems=('broken wheel',))")
    found = asyncio.run(failure(tmp_path, preload, needs=("no_such_module",)))

    assert found == ("preload", "no_such_module not loaded: broken wheel")


@pytest.mark.fault
def test_a_preload_that_hangs_is_given_up_in_bounded_time(tmp_path):
    """The bound ends the wait and the zygote."""
    before = psutil.Process().children()
    found = asyncio.run(failure(tmp_path, "import time; time.sleep(60)", warm_s_max=0.5))

    assert found == ("preload", "not ready in 0.5 s")
    assert psutil.Process().children() == before


@pytest.mark.fault
def test_children_survive_the_zygote_and_the_next_fork_warms_a_new_one():
    """A lost zygote is reported once, costs no child its life, and is replaced in the open."""

    async def scenario():
        lost = asyncio.Queue()
        async with light_zygote(on_lost=lost.put_nowait) as zygote:
            child = await fork(zygote, "stay")
            first = await zygote.warm()
            os.kill(zygote.pid, signal.SIGKILL)
            loss = await asyncio.wait_for(lost.get(), WAIT_S)
            assert not has_ended(child.pidfd, wait_s=0.0)
            end(child)
            end(await fork(zygote, "stay"))
            return first, await zygote.warm(), str(loss), lost.empty()

    first, second, loss, was_all = asyncio.run(scenario())

    assert (first.generation, second.generation) == (1, 2)
    assert (loss, was_all) == (f"the zygote (pid {first.pid}) ended with status -9", True)


@pytest.mark.fault
def test_a_fork_fails_clearly_when_the_zygote_dies_over_it():
    """The caller whose fork was under way hears ZygoteLost; the next one is served."""

    async def scenario():
        async with light_zygote() as zygote:
            await zygote.warm()
            os.kill(zygote.pid, signal.SIGSTOP)
            waiting = asyncio.create_task(fork(zygote, "stay"))
            await asyncio.sleep(0)  # let it reach the zygote
            os.kill(zygote.pid, signal.SIGKILL)
            with pytest.raises(ZygoteLost):
                await waiting
            end(await fork(zygote, "stay"))

    asyncio.run(scenario())


@pytest.mark.fault
def test_a_zygote_that_hangs_is_killed_and_replaced():
    """No fork takes longer than its bound, whatever the zygote does."""

    async def scenario():
        async with light_zygote(fork_s_max=0.3) as zygote:
            await zygote.warm()
            os.kill(zygote.pid, signal.SIGSTOP)
            with pytest.raises(ZygoteLost, match="no fork within"):
                await fork(zygote, "stay")
            end(await fork(zygote, "stay"))

    asyncio.run(scenario())


@pytest.mark.fault
def test_a_cancelled_fork_leaves_no_process():
    """A child whose caller went away is ended, not forgotten."""

    async def scenario():
        async with light_zygote() as zygote:
            await zygote.warm()
            os.kill(zygote.pid, signal.SIGSTOP)
            waiting = asyncio.create_task(fork(zygote, "stay"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            os.kill(zygote.pid, signal.SIGCONT)
            end(await fork(zygote, "stay"))  # in their order: the cancelled one was before it
            until(lambda: psutil.Process(zygote.pid).children() == [])

    asyncio.run(scenario())


def test_the_queue_of_forks_is_bounded(monkeypatch):
    """More forks than the bound are refused at once and start nothing."""
    monkeypatch.setattr(module, "FORKS_QUEUED_MAX", 2)

    async def scenario():
        async with light_zygote() as zygote:
            forks = [fork(zygote, "stay") for _ in range(3)]
            children = await asyncio.gather(*forks, return_exceptions=True)
            for child in children[:2]:
                end(child)
            return children[2]

    assert isinstance(asyncio.run(scenario()), Overloaded)


def test_close_leaves_no_process_thread_or_descriptor():
    """The zygote ends in bounded time, though a child lives on."""
    gc.collect()  # what earlier tests left in cycles
    before, children_before = open_fds(), psutil.Process().children()

    async def scenario():
        async with light_zygote(close_s_max=0.2) as zygote:
            child = await fork(zygote, "stay")
        end(child)
        with pytest.raises(ZygoteLost):
            await zygote.warm()

    asyncio.run(scenario())

    assert psutil.Process().children() == children_before
    assert [t.name for t in threading.enumerate() if t.name.startswith("zygote")] == []
    assert open_fds() == before


def test_nobody_else_reaps_a_zygote_that_is_being_closed():
    """A daemon that reaps what came to it leaves the zygote to its own side, until the end."""

    async def work():
        async with light_zygote() as zygote:
            await zygote.warm()
            process = psutil.Process(zygote.pid)
            process.kill()
            until(lambda: process.status() == psutil.STATUS_ZOMBIE)
            closing = asyncio.create_task(zygote.close())
            await asyncio.sleep(0)
            known = zygote.pids
            reaped = reap_adopted(known)
            await closing
            return known == {process.pid}, reaped, zygote.pids

    assert asyncio.run(work()) == (True, [], frozenset())


DAEMON = """
import asyncio, sys
import structlog
sys.path.insert(0, sys.argv[1])
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from supervisor.adapters.zygote import Zygote, ZygoteOptions

async def main():
    zygote = Zygote(ZygoteOptions(preload="light_preload", needs=()))
    boot = {"do": "arrive_and_stay", "path": sys.argv[2]}
    child = await zygote.fork(boot, module="zygote_children")
    print(zygote.pid, child.pid, flush=True)
    if sys.argv[3] == "stay":
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def running_daemon(folder, then):
    """Run a process with a zygote and a child; yields it and pidfds of what is below it."""
    left = folder / "left"
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(HERE), str(left), then],
        stdout=subprocess.PIPE,
        text=True,
    )
    pidfds = []
    try:
        pidfds += [os.pidfd_open(int(pid)) for pid in daemon.stdout.readline().split()]
        until(left.exists)
        yield daemon, pidfds
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        for pidfd in pidfds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


@pytest.mark.fault
def test_the_zygote_ends_at_once_with_a_killed_daemon(tmp_path):
    """A child that lives on does not keep it alive."""
    with running_daemon(tmp_path, then="stay") as (daemon, (zygote, child)):
        daemon.kill()
        daemon.wait()

        assert has_ended(zygote)
        assert not has_ended(child, wait_s=0.0)


def test_an_interpreter_that_exits_neither_joins_nor_ends_children(tmp_path):
    """Who lives on is the daemon's decision."""
    with running_daemon(tmp_path, then="exit") as (daemon, (_, child)):
        assert daemon.wait(WAIT_S) == 0
        assert not has_ended(child, wait_s=0.0)
