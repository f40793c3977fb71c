"""What a prompt confirms: the call that waits, or the next one with the very same command."""

import msgspec
import pytest

from cmdc_runtime.extensions.actions import DecideApproval, Emit
from cmdc_runtime.extensions.context import PendingApproval, PluginContext
from cmdc_runtime.extensions.hooks import BeforePrompt, BeforeTool
from workers.builtin.plugins.human_approval import CONFIRMED_MAX, HumanApproval

RUN = "rm -rf build"


def is_asked(plugin, command=RUN):
    """Say whether a person is asked about a command."""
    call = BeforeTool("shell", "call_1", {"command": command})
    return plugin.before_tool(call, PluginContext(session_id="s-1")) is not None


def said(plugin, text, parent_id=None, approvals=()):
    """Return the answer to a prompt."""
    context = PluginContext(session_id="s-1", parent_id=parent_id, approvals=approvals)
    return plugin.before_prompt(BeforePrompt(text), context)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (f"confirm:{RUN}", True),
        (f"confirm: {RUN}", True),
        (f" confirm: {RUN} \r\n", True),
        (f"确认执行\uff1a{RUN}", True),
        (f"确认执行\uff1a  {RUN}", True),
        (f"Confirm: {RUN}", False),
        (f"confirm {RUN}", False),
        (f"confirm\uff1a{RUN}", False),
        (f"c\u043enfirm: {RUN}", False),
        (f"确认执行:{RUN}", False),
        (f"Please confirm: {RUN}", False),
        (f'"confirm: {RUN}"', False),
        (f"confirm: confirm: {RUN}", False),
        (f"confirm: {RUN}.", False),
        (f"confirm: {RUN}\nThanks", False),
        (f"confirm: `{RUN}`", False),
        ("confirm: rm -rf", False),
        ("confirm: rm  -rf build", False),
        (f"confirm: {RUN}\u00a0", False),
        (f"confirm: {RUN} \\ ", False),
        ("confirm:", False),
    ],
)
def test_a_confirmed_command_runs(text, passes):
    """The text begins with a prefix, and the rest is the command itself."""
    plugin = HumanApproval()

    assert said(plugin, text) is None
    assert is_asked(plugin) is not passes


def test_a_confirmation_is_used_once():
    """By the next call of the same command; another one leaves it alone."""
    plugin = HumanApproval()
    said(plugin, f"confirm: {RUN}")
    said(plugin, f"confirm: {RUN}")

    assert is_asked(plugin, "rm -rf other")
    assert not is_asked(plugin, f" {RUN}\n")
    assert is_asked(plugin)
    assert plugin.state.confirmed == []


def test_a_confirmation_outlives_the_process():
    """It is part of the state, which holds no command in clear and stays small."""
    plugin, later = HumanApproval(), HumanApproval()
    for at in range(CONFIRMED_MAX + 1):
        said(plugin, f"confirm: rm {at}")
    body = msgspec.msgpack.encode(plugin.state)
    later.state = msgspec.msgpack.decode(body, type=HumanApproval.State)

    assert b"rm 1" not in body
    assert len(body) < 2_000
    assert is_asked(later, "rm 0")  # the oldest gave way
    assert not any(is_asked(later, f"rm {at}") for at in range(1, CONFIRMED_MAX + 1))


def test_a_confirmation_decides_the_approval_that_waits():
    """For exactly this command; nothing is left over for a later call."""
    waiting = (
        PendingApproval(id="a-1", tool="shell", args={"command": "rm -rf other"}),
        PendingApproval(id="a-2", tool="deploy", args={"command": RUN}),
        PendingApproval(id="a-3", tool="shell", args={"command": RUN, "sudo": True}),
        PendingApproval(id="a-4", tool="shell", args={"command": f"{RUN} "}),
        PendingApproval(id="a-5", tool="shell", args={"command": RUN}),
    )
    plugin = HumanApproval()

    decided = Emit(DecideApproval(approval_id="a-4", decision="approve_once"))
    assert said(plugin, f"confirm: {RUN}", approvals=waiting) == decided
    assert said(plugin, "confirm: nothing", approvals=waiting) is None
    assert is_asked(plugin)


def test_a_subagents_task_confirms_nothing():
    """The parent's model wrote it: it must not approve what a person should."""
    plugin = HumanApproval()
    said(plugin, f"confirm: {RUN}", parent_id="s-0")

    assert is_asked(plugin)


@pytest.mark.parametrize(
    ("prefix", "text", "passes"),
    [
        ("run!", f"run! {RUN}", True),
        ("run!", f"confirm: {RUN}", False),
        (["a:", "b:"], f"b: {RUN}", True),
        ([], f"confirm: {RUN}", False),
    ],
)
def test_prefix_is_what_the_options_say(prefix, text, passes):
    """One or several, or none."""
    plugin = HumanApproval(confirm_prefix=prefix)
    said(plugin, text)

    assert is_asked(plugin) is not passes
