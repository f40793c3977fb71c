"""Processes that use too much, that hang, and that cannot be ended."""

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cmdc_runtime.testing import ToolCalls, ToolUse
from scripts.incidents import shop
from scripts.incidents.place import NotHere, wait
from scripts.incidents.stage import Blocks, Scene, Stage

LIMIT: Final = "128M"
SILENT_S: Final = 1.0
"""A limit for the incident; 30 s is the default."""
FROZEN_S: Final = 4.0
"""The same, long enough for ``cmdc ps`` to see the session before it is mended."""
FREEZER: Final = Path("/sys/fs/cgroup/freezer")
CALL: Final = ToolCalls(ToolUse("load_catalogue", {}))


def out_of_memory(stage: Stage) -> Blocks:
    """Have a tool load too much where the kernel holds the limit."""
    if _holds_memory(stage) == "watch":
        raise NotHere("no cgroup holds the memory of a session here")
    return _hungry(stage, "importer")


def memory_watched(stage: Stage) -> Blocks:
    """Have it do so where no cgroup can be had."""
    if _holds_memory(stage) != "watch":
        raise NotHere("cgroups cannot be hidden from a daemon here")
    return _hungry(stage, "importer-2")


def blocked(stage: Stage) -> Blocks:
    """Have a tool block the agent's loop."""
    call = ToolCalls(ToolUse("fetch_prices", {}))
    tools = [shop.fetch_prices]
    with stage.scene("pricer", call, tools=tools, unresponsive_after=SILENT_S) as scene:
        scene.prompt()
        return scene.restarted()


def frozen(stage: Stage) -> Blocks:
    """Stop the process, as SIGSTOP and debuggers do; ``cmdc ps`` sees it first."""
    with stage.scene("paused", unresponsive_after=FROZEN_S) as scene:
        scene.send(signal.SIGSTOP)
        return {"hanging": stage.run("ps")} | scene.restarted()


def unkillable(stage: Stage) -> Blocks:
    """Stop a session whose process the kernel does not end."""
    with stage.scene("stuck") as scene, _in_freezer(scene):
        said = stage.run("stop", "stuck", "--timeout", "1")
        return scene.over("child.not_killed") | {"stop": said}


def _hungry(stage: Stage, name: str) -> Blocks:
    with stage.scene(name, CALL, tools=[shop.load_catalogue], memory_limit=LIMIT) as scene:
        scene.prompt()
        return scene.restarted()


def _holds_memory(stage: Stage) -> str:
    found = json.loads(stage.run("doctor", "--json"))
    (layer,) = [one["found"] for one in found if one["name"] == "limits: memory"]
    return str(layer)


@contextlib.contextmanager
def _in_freezer(scene: Scene) -> Iterator[None]:
    """Hold the agent where no signal reaches it, SIGKILL included."""
    cell = FREEZER / f"cmdc-why-{scene.session.agent_pid()}"
    try:
        cell.mkdir()
    except OSError as error:
        raise NotHere(f"no freezer of cgroup v1: {error}") from error
    try:
        (cell / "cgroup.procs").write_text(str(scene.session.agent_pid()))
        (cell / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (cell / "freezer.state").write_text("THAWED")
        wait(lambda: not (cell / "cgroup.procs").read_text(), "the frozen process ends")
        cell.rmdir()
