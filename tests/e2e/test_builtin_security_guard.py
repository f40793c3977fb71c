"""The guards in a running session: the model gets a no, observers hear of it, nothing is read."""

from cmdc_runtime import events, plugins
from cmdc_runtime.plugins.guards import SkillRule
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
SECRET = "hunter2"


def test_blocked_calls_do_not_run(agent, scripted, cycle_of, tmp_path):
    """Each is an error result with the reason; the other calls of the batch run."""
    (tmp_path / ".env").write_text(f"PASSWORD={SECRET}\n")
    (tmp_path / "a.txt").write_text("plain\n")
    (tmp_path / "link").symlink_to(".env")
    model = scripted(
        ToolCalls(
            ToolUse("read_file", {"path": "link"}, "call_file"),
            ToolUse("shell", {"command": "cat .e''nv"}, "call_shell"),
            ToolUse("shell", {"command": "cat a.*"}, "call_fine"),
            ToolUse("list_dir", {"path": "."}, "call_skill"),
        ),
        "I may not.",
    )
    skills = (SkillRule(name="reader", allowed_tools=("read_file", "shell")),)
    session = agent(
        model,
        tools=["read_file", "shell", "list_dir"],
        plugins=[plugins.SkillGuard(skills=skills), plugins.SecurityGuard()],
        working_dir=str(tmp_path),
    )
    stream = session.subscribe(since=0)
    session.prompt("What is the password?")
    found = [one.event for one in cycle_of(stream)]
    results = {
        said["tool_call_id"]: said["content"]
        for said in model.requests[1]["messages"]
        if said["role"] == "tool"
    }

    assert "link is protected (.env)" in results["call_file"]
    assert ".env is protected (.env)" in results["call_shell"]
    assert results["call_fine"] == "plain"
    assert "not allowed by the active skills (reader)" in results["call_skill"]
    assert SECRET not in str(model.requests)
    heard = [event for event in found if isinstance(event, events.PluginEvent)]
    assert sorted((event.name, event.payload["call_id"]) for event in heard) == [
        ("security_audit", "call_file"),
        ("security_audit", "call_shell"),
        ("skill_violation", "call_skill"),
    ]
