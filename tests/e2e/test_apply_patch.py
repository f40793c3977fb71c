"""A patch that a model sends: files change; one that does not fit is reported to the model."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

PATCH = """*** Begin Patch
*** Update File: a.py
@@
-x = 1
+x = 2
*** Add File: docs/b.md
+new
*** End Patch
"""


@pytest.mark.parametrize("sandbox", [None, "landlock"])
def test_a_model_changes_files_by_patches(agent, scripted, cycle_of, tmp_path, sandbox):
    """The first is done in the session's sandbox; the same once more does not fit any longer."""
    (tmp_path / "a.py").write_text("x = 1\n")
    use = ToolUse("apply_patch", {"patch": PATCH})
    hooks = ToolUse("apply_patch", {"patch": PATCH.replace("docs/b.md", ".git/hooks/pre-commit")})
    model = scripted(ToolCalls(use), ToolCalls(use), ToolCalls(hooks), "Done.")
    try:
        session = agent(
            model, tools=[cmdc.tools.ApplyPatch], working_dir=str(tmp_path), sandbox=sandbox
        )
    except cmdc.SandboxUnavailable as missing:
        pytest.skip(str(missing))
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    cycle_of(stream)
    results = [one for one in session.messages() if one.role == "tool_result"]

    assert results[0].content == "Changed a.py: 1 lines added, 1 removed\nAdded docs/b.md: 1 lines"
    assert [one.is_error for one in results] == [False, True, True]
    assert "no line 'x = 1'" in results[1].content
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
    assert (tmp_path / "docs/b.md").read_text() == "new\n"
    assert not (tmp_path / ".git/hooks/pre-commit").exists()
