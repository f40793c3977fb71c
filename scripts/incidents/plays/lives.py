"""What is shown of a session that goes on, and of one that outlives its daemon."""

import signal
from typing import Final

import psutil

from scripts.incidents.stage import Blocks, Stage

CRASH: Final = "child_terminated root/sessions/session:reader/agent"
"""The report that the incident is about."""


def asked(stage: Stage) -> Blocks:
    """Kill a process, and ask about it in every way."""
    with stage.scene("reader") as scene:
        scene.session.run("Read the README.")
        scene.send(signal.SIGKILL)
        scene.wait_up(2)
        tree = stage.run("tree")
        tail = stage.follow("tail", "reader", "--since", "0", until="agent_recovered")
        reports = stage.follow("tail", "_supervisor", "--since", "0", until=CRASH)
        shown = scene.restarted()
    mine = "\n".join(line for line in reports.splitlines() if "session:reader" in line)
    monitor = scene.greeting + shown["monitor"]
    return {**shown, "monitor": monitor, "tree": tree, "tail": tail, "reports": mine}


def daemon_killed(stage: Stage) -> Blocks:
    """Kill the daemon and its agent, and start the next daemon."""
    place = stage.place
    with stage.scene("survivor") as scene:
        scene.also = ("daemon.",)
        agent = psutil.Process(scene.session.agent_pid())
        place.kill()
        agent.kill()
        place.start()
        return scene.restarted()
