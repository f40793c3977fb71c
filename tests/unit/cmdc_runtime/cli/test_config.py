"""``cmdc config``: what people read of what holds for new agents, and what programs do."""

import json

import click
import pytest

from cmdc_runtime.cli.choices import AgentChoice
from cmdc_runtime.cli.entry import EXIT_USAGE, main

KEY = "sk-0123456789abcdef"
GIVEN = {
    "model": None,
    "tools": (),
    "system": None,
    "working_dir": ".",
    "session_id": None,
    "keep": False,
    "api_base": None,
    "provider_opts": (),
    "address": "/run/here",
}


@pytest.fixture(autouse=True)
def _users_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("CMDC_MODEL", "CMDC_DATA_DIR", "CMDC_AGENT_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "cmdc").mkdir()


@pytest.fixture
def written(tmp_path):
    """Write the user's file."""
    return (tmp_path / "cmdc/config.toml").write_text


def test_each_value_is_shown_with_where_it_comes_from(written, capsys, monkeypatch):
    """A key is hidden, in the table and in JSON."""
    monkeypatch.setenv("CMDC_MODEL", "openai:m")
    written(f'[provider_opts]\napi_key = "{KEY}"\n')

    assert main(["config"]) == 0
    table = capsys.readouterr().out
    assert main(["config", "--json"]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}

    assert KEY not in table
    assert "CMDC_MODEL" in table
    assert rows["default_model"] == {
        "name": "default_model",
        "value": "openai:m",
        "source": "CMDC_MODEL",
    }
    assert rows["provider_opts"]["value"] == {"api_key": "[hidden]"}
    assert rows["provider_opts"]["source"].endswith("cmdc/config.toml:1")


def test_a_wrong_file_is_wrong_usage(written, capsys):
    """The line says where."""
    written("zzz = 1\n")

    assert main(["config"]) == EXIT_USAGE
    assert "config.toml:1: 'zzz' is no key" in capsys.readouterr().err


def test_an_agent_starts_with_what_the_file_says(written):
    """Its model and its tools, unless others are named; the built-in default is no choice."""
    with pytest.raises(click.UsageError, match="no model: name one with --model"):
        AgentChoice.of(GIVEN)
    written('default_model = "openai:f"\ndefault_tools = ["shell"]\n')

    found = AgentChoice.of(GIVEN).options
    named = AgentChoice.of(GIVEN | {"model": "openai:n", "tools": ("read_file",)}).options

    assert (found["model"], found["config"].default_tools) == ("openai:f", ["shell"])
    assert "tools" not in found
    assert (named["model"], named["tools"]) == ("openai:n", ["read_file"])
