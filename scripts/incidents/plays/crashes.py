"""Ends that nobody wanted: a bug, a signal, an exit, and one crash after the other."""

import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from cmdc_runtime.testing import ToolCalls, ToolUse
from scripts.incidents import shop
from scripts.incidents.stage import Blocks, Stage


def raised(stage: Stage) -> Blocks:
    """Have a tool leave a callback in the agent's loop, with a bug in it."""
    call = ToolCalls(ToolUse("charge", {"order": "A-17"}))
    with stage.scene("cashier", call, tools=[shop.charge]) as scene:
        scene.prompt()
        return scene.restarted()


def killed(stage: Stage) -> Blocks:
    """Send SIGKILL."""
    with stage.scene("proofreader") as scene:
        scene.send(signal.SIGKILL)
        return scene.restarted()


def terminated(stage: Stage) -> Blocks:
    """Send SIGTERM, past the daemon."""
    with stage.scene("writer") as scene:
        scene.send(signal.SIGTERM)
        return scene.restarted()


def killed_at_stop(stage: Stage) -> Blocks:
    """Stop a session whose process does not react."""
    with stage.scene("stubborn") as scene:
        scene.send(signal.SIGSTOP)
        stage.run("stop", "stubborn", "--timeout", "1")
        return scene.over()


def segmentation_fault(stage: Stage) -> Blocks:
    """Have a C library of a tool read where it must not."""
    call = ToolCalls(ToolUse("render", {"page": 3}))
    with stage.scene("printer", call, tools=[shop.render]) as scene:
        scene.prompt()
        return scene.restarted()


def exit_3(stage: Stage) -> Blocks:
    """Have a library of a tool end the process."""
    return _exits(stage, "converter", 3)


def exit_0(stage: Stage) -> Blocks:
    """Have it do so and say that all is well."""
    return _exits(stage, "quitter", 0)


def crash_loop(stage: Stage) -> Blocks:
    """Kill a process when what every process needs at its start is gone."""
    with TemporaryDirectory(prefix="cmdc-why-") as folder:
        licence = Path(folder, "licence")
        licence.touch()
        plugin = shop.Licence(file=str(licence), is_rude=True)
        with stage.scene("lapsed", is_brief=True, plugins=[plugin]) as scene:
            licence.unlink()
            scene.send(signal.SIGKILL)
            shown = scene.over("process.ended", "incarnation=4")
    return {"brief": shown.pop("monitor"), "monitor": stage.run("monitor", "lapsed")} | shown


def _exits(stage: Stage, name: str, status: int) -> Blocks:
    call = ToolCalls(ToolUse("convert", {"status": status}))
    with stage.scene(name, call, tools=[shop.convert]) as scene:
        scene.prompt()
        return scene.restarted()
