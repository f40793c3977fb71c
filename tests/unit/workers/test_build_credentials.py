"""Which credentials an agent knows, and that failures are reported without them."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import foreign
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.redaction import HIDDEN
from cmdc_runtime.spec import agent_spec
from workers import build
from workers.core.state import Memory, PluginFacts, ToolFacts

KEY = "sk-SEKRIT1234567890abcdefGHIJ"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Let the machine's own variables hide nothing, and the other tests hide nothing of this."""
    for name in [*build.os.environ]:
        monkeypatch.delenv(name)
    yield
    foreign.hide_by(None)


def spec(**given):
    """Return the definition of an agent."""
    return agent_spec(cmdc.Options(**{"model": "openai/scripted", **given}))


def packed(**options):
    """Return what brings a built-in with options."""
    return Packed(kind="ref", label="it", ref="it", data=msgspec.msgpack.encode(options))


GIVEN = {
    "key": {"provider_opts": {"api_key": KEY}},
    "header": {"provider_opts": {"extra_headers": {"X-Odd": KEY}}},
    "header of a plugin": {"plugins": [cmdc.plugins.Telemetry(headers={"X-Odd": KEY})]},
    "a subagent's": {
        "subagents": [cmdc.SubAgent(name="s", description="d", provider_opts={"api_key": KEY})]
    },
    "user_data": {"user_data": {"db": {"password": KEY}}},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_was_given_is_hidden_in_failures(given):
    """Before the agent has a memory, since its parts may fail while they are opened."""
    build.keep(spec(**given))

    assert foreign.summary_of(ValueError(f"boom {KEY}")) == f"ValueError: boom {HIDDEN}"


KNOWN = {
    "a later model's": Memory(provider_opts={"api_key": KEY}),
    "an earlier model's": Memory(former_opts=({"api_key": KEY},)),
    "a later plugin's": Memory(plugins=(PluginFacts("p", frozenset(), packed(token=KEY)),)),
    "a later tool's": Memory(tools=(ToolFacts("t", packed=packed(headers={"X": KEY})),)),
}


@pytest.mark.parametrize("memory", KNOWN.values(), ids=KNOWN)
def test_what_came_later_is_hidden_as_soon_as_it_is_known(memory):
    """The memory is looked at when something fails."""
    memories = [Memory()]
    build.keep(spec(), lambda: memories[-1])
    before = foreign.summary_of(ValueError(KEY))
    memories.append(memory)

    assert (before, foreign.summary_of(ValueError(KEY))) == (
        f"ValueError: {KEY}",
        f"ValueError: {HIDDEN}",
    )
    build.keep(spec(), memory)
    assert foreign.summary_of(ValueError(KEY)) == f"ValueError: {HIDDEN}"


def test_the_environment_has_credentials_but_for_names_of_files(monkeypatch, tmp_path):
    """Every traceback has parts of paths."""
    monkeypatch.setenv("SSH_KEY", str(tmp_path))
    monkeypatch.setenv("A_TOKEN", f"/{KEY}")
    monkeypatch.setenv("ANOTHER_TOKEN", f"/{'x' * 4000}")
    build.keep(spec())

    assert foreign.text_of(ValueError(f"{tmp_path}: /{KEY}")) == f"{tmp_path}: {HIDDEN}"


@pytest.mark.parametrize("value", ["local", "test", "123", "scripted"])
def test_what_stands_for_a_key_is_a_word(value):
    """Failures are prose; ``scripted`` is a part of the model's name."""
    build.keep(spec(provider_opts={"api_key": value}))
    text = f"a {value}, and {value}s"

    assert foreign.text_of(ValueError(text)) == text


@pytest.mark.parametrize("value", ["SEKRIT", "hunter2", "q7w!", "sk-1", "correcthorse"])
def test_a_short_key_is_hidden_all_the_same(value):
    """Whatever is no plain word."""
    build.keep(spec(provider_opts={"api_key": value}))

    assert foreign.text_of(ValueError(f"bad {value}")) == f"bad {HIDDEN}"


def test_packed_code_is_left_alone():
    """Nobody opens them to look for credentials."""
    packed = Packed(kind="value", label="it", data=b"\xff", python=(3, 11))
    memory = Memory(tools=(ToolFacts("t", packed=packed), ToolFacts("u")))

    assert build.known(spec(), memory) == frozenset()
