"""A plugin of a script reaches a process that has none of its code, with options and state."""

import subprocess
import sys
import textwrap

import pytest

RUN_TIMEOUT_S = 60.0

SCRIPT = """
    import re
    import sys
    from typing import Annotated

    import msgspec
    from cmdc_runtime import plugins
    from cmdc_runtime.extensions.actions import BlockTool, Emit
    from cmdc_runtime.extensions.hooks import BeforeTool
    from cmdc_runtime.extensions.plugin import Plugin, hook
    from cmdc_runtime.packing import pack_plugin

    class Guard(Plugin):
        priority = 50
        fail = "closed"

        class Config(msgspec.Struct, frozen=True):
            denied: frozenset[str] = frozenset({"rm"})
            limit: Annotated[int, msgspec.Meta(gt=0)] = 9
            pattern: re.Pattern = re.compile("x")

        class State(msgspec.Struct):
            hits: int = 0

        @hook(tools=["shell"], timeout=2.0)
        def before_tool(self, event: BeforeTool, context) -> BlockTool | None:
            self.state.hits += 1
            known = sorted(self.config.denied)
            return BlockTool(f"{self.name} {known} {self.config.limit} {self.state.hits}")

    class Other(Guard):
        def handle_event(self, event, context):
            return [Emit("seen", event.kind), super().handle_event(event, context)]

    made = Guard(denied=["dd"], limit=3)
    made.state.hits = 40
    things = [
        made,
        (Other, {"denied": {"curl"}, "pattern": re.compile("y")}),
        plugins.CostGuard(max_cost_usd=1.0),
    ]
    packed = [pack_plugin(thing, f"plugins[{at}]") for at, thing in enumerate(things)]
    sys.stdout.buffer.write(msgspec.msgpack.encode(packed))
"""
WORKER = """
    import asyncio
    import sys

    import msgspec
    from cmdc_runtime.extensions.hooks import BeforeRequest, BeforeTool
    from cmdc_runtime.extensions.context import PluginContext
    from cmdc_runtime.packed_code import Packed
    from workers.pipeline import Pipeline
    from workers.loader import load_plugins

    packed = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[Packed])
    context = PluginContext(session_id="s-1", cost_usd=2.0)
    for plugin in load_plugins(packed):
        pipeline = Pipeline([plugin], lambda: context)
        for hook in (BeforeTool("shell", "call_1", {}), BeforeRequest(())):
            verdict = asyncio.run(pipeline.run(hook))
            abort = verdict.abort and verdict.abort.reason
            print(plugin.name, verdict.blocked, abort, verdict.emitted)
            print(verdict.states)
"""


@pytest.mark.process
@pytest.mark.slow
def test_plugins_of_a_script_arrive(tmp_path):
    """Nested Structs, decorators, ``super`` and options work over there, and a state arrives."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    packed = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, timeout=RUN_TIMEOUT_S
    ).stdout
    worker = subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(WORKER)],
        check=False,
        input=packed,
        capture_output=True,
        cwd="/",
        timeout=RUN_TIMEOUT_S,
    )

    assert worker.stderr.decode() == ""
    assert worker.stdout.decode().splitlines() == [
        "guard guard ['dd'] 3 41 None ()",
        "(('guard', b'\\x81\\xa4hits)'),)",
        "guard None None ()",
        "()",
        "other other ['curl'] 9 1 None (('seen', 'before_tool'),)",
        "(('other', b'\\x81\\xa4hits\\x01'),)",
        "other None None (('seen', 'before_request'),)",
        "()",
        "cost_guard None None ()",
        "()",
        "cost_guard None max_cost_usd is reached: 2 of 1 used ()",
        "()",
    ]
