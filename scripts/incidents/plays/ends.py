"""Ends that somebody wanted, and the one of a session that never was."""

from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from scripts.incidents import shop
from scripts.incidents.stage import Blocks, Stage

TURNS_MAX = 2


def stopped(stage: Stage) -> Blocks:
    """Stop a session without a reason."""
    with stage.scene("finished") as scene:
        stage.run("stop", "finished")
        return scene.over()


def shut_down(stage: Stage) -> Blocks:
    """Stop a session with a reason."""
    with stage.scene("moved") as scene:
        stage.run("stop", "moved", "--reason", "moved to the other machine")
        return scene.over()


def out_of_turns(stage: Stage) -> Blocks:
    """Have a model always want one more call, and options that end the session for it."""
    calls = [ToolCalls(ToolUse("look_up", {"word": f"w{one}"})) for one in range(TURNS_MAX + 1)]
    with stage.scene(
        "endless",
        *calls,
        tools=[shop.look_up],
        max_turns=TURNS_MAX,
        exit_on=["max_turns_exceeded"],
    ) as scene:
        scene.prompt()
        return scene.over()


def silent_provider(stage: Stage) -> Blocks:
    """Never answer a request, with options that end the session for it."""
    with stage.scene(
        "unanswered",
        (Hold(), "never"),
        stall_after=0.4,
        stall_timeout=0.5,
        max_retries=0,
        exit_on=["provider_timeout"],
    ) as scene:
        scene.prompt()
        return scene.over()


def plugin_aborted(stage: Stage) -> Blocks:
    """Have a plugin refuse a prompt, and options that end the session for it."""
    with stage.scene("thrifty", plugins=[shop.Spending], exit_on=["plugin_aborted"]) as scene:
        scene.prompt()
        return scene.over()


def never_seen(stage: Stage) -> Blocks:
    """Ask for a name that nobody has ever used."""
    return {"monitor": stage.run("monitor", "raeder"), "ps": stage.run("ps")}
