"""A session whose tools read and write what a store of the application's own keeps."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.backend import ExecuteResult
from cmdc_runtime.testing import ToolCalls, ToolUse
from workers.builtin.backends._tree import Filesystem

pytestmark = pytest.mark.process
TURN_S = 20.0
PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-one\n+1\n*** End Patch"
CALLS = [
    ToolUse("write_file", {"path": "notes.txt", "content": "one\ntwo\n"}),
    ToolUse("apply_patch", {"patch": PATCH}),
    ToolUse("edit_file", {"path": "/notes.txt", "old_string": "two", "new_string": "2"}),
    ToolUse("read_file", {"path": "notes.txt"}),
    ToolUse("grep", {"pattern": "2", "context_lines": 0}),
    ToolUse("glob", {"pattern": "*.txt"}),
    ToolUse("list_dir", {}),
    ToolUse("shell", {"command": "ls"}),
    ToolUse("read_file", {"path": "../secret"}),
]


class Store(Filesystem):
    """Files in a place that no tool names, and commands that are only named."""

    def execute(self, command, timeout_s=60.0):
        """Return the command."""
        return ExecuteResult(output=f"asked for {command}", exit_code=0)


def test_tools_for_files_work_on_the_applications_own_store(agent, scripted, tmp_path):
    """Each of them, in whatever process it runs; the working folder stays as it is."""
    work, kept = tmp_path / "work", tmp_path / "kept"
    work.mkdir()
    kept.mkdir()
    (tmp_path / "secret").write_text("secret")
    model = scripted(*(ToolCalls(one) for one in CALLS), "done")
    session = agent(
        model,
        tools=sorted({one.name for one in CALLS}),
        working_dir=str(work),
        sandbox=(Store, {"root_dir": str(kept)}),
    )
    session.run("Go.", timeout=3 * TURN_S)
    results = [one.content for one in session.messages() if one.role == "tool_result"]

    assert (kept / "notes.txt").read_text() == "1\n2\n"
    assert list(work.iterdir()) == []
    assert results[1].startswith("Changed notes.txt")
    assert "1\n2" in results[3]
    assert results[4].splitlines() == ["notes.txt", "2|2"]
    assert results[5] == "notes.txt"
    assert "notes.txt" in results[6]
    assert results[7] == "asked for ls"
    assert "invalid path" in results[8]
    with pytest.raises(cmdc.SandboxUnavailable):
        agent(model, sandbox=(Store, {"root_dir": str(kept)}), require_sandbox=True)
