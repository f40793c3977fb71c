"""Sessions that do not come up: no process, too slow, code that is gone, a history broken."""

import contextlib
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.incidents import shop
from scripts.incidents.place import NotHere, wait
from scripts.incidents.stage import Blocks, Stage

START_S: Final = 1.0
"""A limit for the incident; 30 s is the default."""
_SLOW: Final = """
import time

time.sleep(3600)
"""
_TOOL: Final = '''
import cmdc_runtime as cmdc


@cmdc.tool(effects="read")
def find(word: str) -> str:
    """Find something."""
    return word
'''
_DYING: Final = """
import os
import signal
from pathlib import Path

forks = 0


def before():
    global forks
    forks += 1
    if forks > 1 and Path(__file__).with_name("fatal").exists():
        os.kill(os.getpid(), signal.SIGKILL)


os.register_at_fork(before=before)
"""
"""A zygote that has this dies when it forks; the first fork is its own test."""
PIDS: Final = Path("/sys/fs/cgroup/pids")


def too_slow(stage: Stage) -> Blocks:
    """Have the module of a tool wait for something when it is imported."""
    (stage.place.app / "warehouse.py").write_text(_SLOW)
    return stage.refused("sleeper", tools=["warehouse:find"], start_timeout=START_S)


def code_gone(stage: Stage) -> Blocks:
    """Remove a tool's module while the session runs, and then kill its process."""
    module = stage.place.app / "shelf.py"
    module.write_text(_TOOL)
    with stage.scene("librarian", tools=["shelf:find"], code="latest") as scene:
        module.unlink()
        scene.send(signal.SIGKILL)
        return scene.over("process.ended", "incarnation=2")


def refused_by_plugin(stage: Stage) -> Blocks:
    """Have a plugin refuse the session."""
    plugin = shop.Licence(file="/nonexistent")
    return stage.refused("unlicensed", plugins=[plugin])


def history_broken(stage: Stage) -> Blocks:
    """Damage a record of the journal, and start the daemon anew."""
    place = stage.place
    with stage.scene("historian") as scene:
        scene.session.run("Remember this.")
        scene.also = ("daemon.",)
        place.end()
        with sqlite3.connect(place.journal) as journal:
            journal.execute("UPDATE records SET body = x'c1' WHERE session_id = 'historian'")
        journal.close()
        place.start()
        return scene.over("process.ended", "incarnation=2")


def no_worker(stage: Stage) -> Blocks:
    """Let the zygote fork no process for a new session."""
    with _forks_limited(stage) as limit:
        limit.write_text("1")
        return stage.refused("homeless")


def worker_awaited(stage: Stage) -> Blocks:
    """Let the zygote fork no process for a session that goes on, and then let it."""
    with _forks_limited(stage) as limit, stage.scene("waiting") as scene:
        limit.write_text("1")
        scene.send(signal.SIGKILL)
        wait(lambda: scene.session.agent_pid() is None, "the process is gone")
        seen = stage.run("ps")
        limit.write_text("max")
        return {"hanging": seen} | scene.restarted()


def nursery_lost(stage: Stage) -> Blocks:
    """Have the zygote die whenever it forks."""
    place = stage.place
    hook, fatal = place.app / "sitecustomize.py", place.app / "fatal"
    hook.write_text(_DYING)
    try:
        old = place.zygote()
        old.kill()
        place.wait_warm(old.pid)
        fatal.touch()
        return stage.refused("orphaned", also=("zygote.ended",))
    finally:
        hook.unlink()
        fatal.unlink(missing_ok=True)
        place.wait_warm()


@contextlib.contextmanager
def _forks_limited(stage: Stage) -> Iterator[Path]:
    """Put the zygote into a cgroup of its own, and lend the file with its limit."""
    pid = str(stage.place.zygote().pid)
    cell = PIDS / f"cmdc-why-{pid}"
    home = PIDS / _group_of(pid, "pids").lstrip("/")
    try:
        cell.mkdir()
    except OSError as error:
        raise NotHere(f"no pids controller of cgroup v1: {error}") from error
    try:
        (cell / "cgroup.procs").write_text(pid)
        yield cell / "pids.max"
    finally:
        (home / "cgroup.procs").write_text(pid)
        wait(lambda: not (cell / "cgroup.procs").read_text(), "nothing is left in the cgroup")
        cell.rmdir()


def _group_of(pid: str, controller: str) -> str:
    """Return the cgroup of a process in one hierarchy of version 1."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    found = [
        path for _, names, path in (line.split(":", 2) for line in lines) if names == controller
    ]
    return found[0] if found else "/"
