"""What a model may be called, and that every way in asks."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import plugins
from cmdc_runtime.client.arguments import checked_model
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.errors import CmdcError, UsageError
from cmdc_runtime.extensions.actions import BadActionError
from cmdc_runtime.plain import SHOWN_CHARS_MAX
from cmdc_runtime.plugins.thinking import Rule, TurnGt
from cmdc_runtime.provider_options import MODEL_CHARS_MAX, model_parts, model_problem
from workers.performers.tool_port import branch_task

NONE = {
    "no provider": "gpt",
    "no name": "openai:",
    "an address": "https://host/v1",
    "a provider of spaces": " :x",
    "line break": "openai:x\n",
    "control character": "openai:\x1b[31mx",
    "NUL": "openai:x\0y",
    "half a surrogate": "openai:\ud800",
    "direction": "openai:\u202ex",
    "100,000 characters": "openai:" + "x" * 100_000,
    "empty": "",
    "number": 7,
    "bytes": b"openai:x",
}


class Source:
    """A model's source that names another thing."""

    def __init__(self, *source):
        self.source = source

    def model_source(self):
        return self.source


def started(**options):
    start_request(None, {"model": "a:b"} | options)


WAYS = {
    "create_agent": lambda name: started(model=name),
    "a source of create_agent": lambda name: started(model=Source(name, {})),
    "a blueprint": lambda name: start_request(None, {"blueprint": cmdc.Blueprint(model=name)}),
    "a subagent": lambda name: started(subagents=[cmdc.SubAgent("n", "d", model=name)]),
    "a source of a subagent": lambda name: started(
        subagents=[cmdc.SubAgent("n", "d", model=Source(name, {}))]
    ),
    "switch_model": lambda name: checked_model(name, None),
    "a source of switch_model": lambda name: checked_model(Source(name, {}), None),
    "Recovery": lambda name: plugins.Recovery(fallback_model=name),
    "ContentPolicy": lambda name: plugins.ContentPolicy(judge_model=name),
    "MemoryFlush": lambda name: plugins.MemoryFlush(model=name),
    "Reflection": lambda name: plugins.Reflection(reviewer_model=name),
    "ModelRouter": lambda name: plugins.ModelRouter(default_model=name),
    "a rule of ModelRouter": lambda name: plugins.ModelRouter(rules=[Rule(TurnGt(1), name)]),
    "an action": lambda name: cmdc.SwitchModel(name).sealed(),
    "a branch": lambda name: branch_task("p", name, None, fork=False),
}


@pytest.mark.parametrize("name", NONE.values(), ids=NONE)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_model_is_called_so(way, name):
    """The error names the option, shows the value and says what would be right."""
    with pytest.raises((CmdcError, BadActionError, cmdc.ToolError)) as raised:
        way(name)
    reported = str(raised.value)
    reported.encode()

    assert "model" in reported
    assert "expected" in reported.lower()
    assert len(reported) < 4 * SHOWN_CHARS_MAX + 120, reported


@pytest.mark.parametrize("source", [(), ("a:b",), ("a:b", 7), 7])
def test_a_source_that_says_something_else_is_an_error_of_the_options(source):
    """It is the application's code."""
    with pytest.raises(UsageError, match=r"model: <a Source> failed"):
        started(model=Source(*source) if isinstance(source, tuple) else Source(source))


@pytest.mark.parametrize(
    "name",
    [
        "openai:gpt-4o-mini",
        "openai/gpt-4o-mini",
        "ollama/llama3:8b",
        "openrouter/meta-llama/llama-3.3-70b-instruct:free",
        "bedrock/arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abc",
        "lm_studio/Qwen 3 8B",
        "huggingface/中文/模型",
        "a:" + "x" * (MODEL_CHARS_MAX - 2),
    ],
)
def test_a_model_is_called_so(name):
    """Whether there is one only the provider knows."""
    assert model_problem(name) is None
    assert all(model_parts(name))


def test_a_name_that_is_too_long_says_so():
    """With both numbers."""
    problem = model_problem("a:" + "x" * (MODEL_CHARS_MAX - 1))

    assert f"{MODEL_CHARS_MAX + 1} characters, at most {MODEL_CHARS_MAX} are taken" in problem
