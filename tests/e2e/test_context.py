"""What a tool sees of its session, in each place that it runs in; and what a status shows."""

import json

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Text, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 30.0


def seen(context):
    """Return all that there is."""
    config = context.config
    return {
        "tokens": context.total_tokens,
        "cost": context.cost_usd,
        "tools": sorted(context.tools),
        "subagents": list(context.subagents),
        "prompt_mode": context.prompt_mode,
        "said": context.last_assistant_reply,
        "memory": context.memory_contents,
        "config": None if config is None else [config.data_dir, config.default_tools],
    }


@cmdc.tool(effects="read")
def in_process(*, context: cmdc.Context) -> str:
    """Report."""
    return json.dumps(seen(context))


class InThread(cmdc.Tool):
    """Reports."""

    name = "in_thread"
    description = "Report."
    isolation = "thread"
    effects = "read"

    def execute(self, args, context):
        return json.dumps(seen(context))


@cmdc.tool(effects="read")
async def in_task(*, context: cmdc.Context) -> str:
    """Report."""
    return json.dumps(seen(context))


NAMES = ("in_process", "in_task", "in_thread")


def test_a_tool_sees_its_session_wherever_it_runs(agent, scripted, tmp_path):
    """Cost, tokens, tools, memory, subagents, prompt mode, the last reply and the config."""
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    helper = cmdc.SubAgent(name="helper", description="Helps.")
    model = scripted(
        Text("First."), ToolCalls(*(ToolUse(name, {}) for name in NAMES), text="I look."), Text("x")
    )
    session = agent(
        model,
        tools=[in_process, in_task, InThread],
        subagents=[helper],
        plugins=["memory_loader"],
        prompt_mode="task",
        working_dir=str(tmp_path),
        config=cmdc.Config(data_dir=str(tmp_path), default_tools=["grep", in_task]),
    )
    session.run("1", timeout=TURN_S)
    spent = session.status().total_tokens
    session.run("2", timeout=TURN_S)
    reported = [json.loads(one.content) for one in session.messages() if one.role == "tool_result"]

    assert reported[0] == reported[1] == reported[2]
    assert spent <= reported[0].pop("tokens") <= session.status().total_tokens
    assert reported[0] == {
        "cost": 0.0,
        "tools": sorted([*NAMES, "task"]),
        "subagents": ["helper", "general-purpose"],
        "prompt_mode": "task",
        "said": "I look.",
        "memory": {"AGENTS.md": "Be brief."},
        "config": [str(tmp_path), ["grep"]],
    }


def test_a_plugin_sees_the_config(agent, scripted, plugin_of, tmp_path):
    """As a tool does; without one there is none."""

    def reported(_event, context):
        return cmdc.Emit("config", None if context.config is None else context.config.data_dir)

    plugin = plugin_of(before_prompt=reported)
    for config, found in ((cmdc.Config(data_dir=str(tmp_path)), str(tmp_path)), (None, None)):
        session = agent(scripted("fine"), plugins=[plugin], config=config)
        with session.subscribe(types=["plugin:config"]) as stream:
            session.run("Hi.", timeout=TURN_S)
            assert stream.get(TURN_S).event.payload == found


def test_a_status_shows_calls_and_context(agent, scripted):
    """The calls that the model asked for, what a request may have, and what the newest had."""
    calls = ToolCalls(*(ToolUse(name, {}) for name in NAMES[:2]))
    session = agent(scripted(calls, Text("x")), tools=[in_process, in_task])
    before = session.status()
    session.run("Go.", timeout=TURN_S)
    after = session.status()

    assert (before.tool_call_count, before.current_context_tokens) == (0, None)
    assert after.tool_call_count == 2
    assert 0 < after.current_context_tokens < after.total_tokens
    assert (after.context_window, after.disabled_tools) == (None, ())


def test_a_known_model_has_a_window(agent):
    """Before anything is asked."""
    session = agent("openai:gpt-4o-mini", api_key="none")

    assert session.status().context_window == 128_000
