"""The offload of large results in a running session."""

import re
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import backends, events, plugins
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
LARGE = "".join(f"line {number:06}\n" for number in range(20_000))
KEPT = re.compile(r"All of it is kept as (\S+)")


@cmdc.tool(effects="read", isolation="task")
async def fetch() -> str:
    """Fetch 240 KB."""
    return "".join(f"line {number:06}\n" for number in range(20_000))


@pytest.mark.parametrize(
    "options", [{}, {"backend": backends.State()}], ids=["on the disk", "in memory"]
)
def test_a_model_reads_a_large_result_in_parts(agent, scripted, cycle_of, tmp_path, options):
    """It sees a preview, and pages and searches by the path that stands there."""

    def read_on(request):
        path = KEPT.search(request["messages"][-1]["content"])[1]
        return ToolCalls(
            ToolUse("read_file", {"path": path, "offset": 15_001, "limit": 2}),
            ToolUse("grep", {"pattern": "019999", "path": path, "context_lines": 0}),
        )

    model = scripted(ToolCalls(ToolUse("fetch", {})), read_on, "done")
    session = agent(
        model,
        tools=[fetch, cmdc.tools.ReadFile, cmdc.tools.Grep],
        plugins=[plugins.LargeResultOffload(**options)],
        working_dir=str(tmp_path),
    )
    stream = session.subscribe()
    session.prompt("Go.")
    heard = [one.event for one in cycle_of(stream)]
    [offloaded] = [event for event in heard if isinstance(event, events.PluginEvent)]
    shown = model.requests[1]["messages"][-1]["content"]
    page, found = (said["content"] for said in model.requests[2]["messages"][-2:])

    assert len(shown) < 4000
    assert shown.splitlines()[-2] == "line 019999"
    assert page.startswith("line 015000\nline 015001\n")
    assert "20000|line 019999" in found
    assert (offloaded.name, offloaded.payload["chars"]) == ("large_result_offloaded", len(LARGE))
    if not options:
        kept = Path(tmp_path, ".cmdc/offload" + offloaded.payload["path"])
        assert kept.read_text() == LARGE
