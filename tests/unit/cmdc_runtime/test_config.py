"""What an application says once for all of its agents, and how wrong words of it are reported."""

from pathlib import Path
from typing import get_args

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.config import (
    FIELDS,
    FILE_BYTES_MAX,
    SHELLS,
    VARIABLES,
    Config,
    ProviderConfig,
    config_rows,
    found_config,
    user_file,
)
from cmdc_runtime.errors import InvalidFields, InvalidOptions
from cmdc_runtime.extensions.sandbox import ShellKind
from cmdc_runtime.options import Options, parse
from cmdc_runtime.redaction import HIDDEN
from cmdc_runtime.subagent import SubAgent
from supervisor.config import CLIENT_VARIABLES

KEY = "sk-0123456789abcdef"
FILE = f"""
default_model = "openai:one"
default_tools = ["read_file"]

[provider_opts]
temperature = 0.1
api_key = "{KEY}"

[[providers]]
models = "openai:local-.*"
base_url = "http://127.0.0.1:8000/v1"

[providers.opts]
temperature = 0.9

[[providers]]
base_url = "http://127.0.0.1:9000/v1"
"""


@pytest.fixture
def written(tmp_path):
    """Write a file and return its path."""

    def write(text):
        path = tmp_path / "agents.toml"
        path.write_text(text)
        return path

    return write


def problems_of(path, environ=None):
    with pytest.raises(InvalidOptions) as caught:
        found_config(path, environ or {}, home=Path("/nowhere"))
    return caught.value.problems


def problems(**given):
    with pytest.raises(InvalidOptions) as caught:
        parse(None, given)
    return caught.value.problems


def test_without_anything_the_defaults_hold():
    """They are the documented ones, and each is shown as one."""
    found = found_config(None, {}, home=Path("/nowhere"))

    assert found.config == Config()
    assert found.config.default_model == "anthropic:claude-sonnet-4-5"
    assert found.config.default_model_id == "claude-sonnet-4-5"
    assert set(found.sources) == set(FIELDS)
    assert set(found.sources.values()) == {"default"}


def test_variables_outrank_the_file_and_the_file_the_defaults(written):
    """Each value says where it comes from, one of a file with its line."""
    path = written(FILE)

    found = found_config(path, {"CMDC_MODEL": "openai:two"}, home=Path("/nowhere"))

    assert found.config.default_model == "openai:two"
    assert found.config.default_tools == ["read_file"]
    assert found.sources == {
        "data_dir": "default",
        "default_model": "CMDC_MODEL",
        "default_tools": f"{path}:3",
        "provider_opts": f"{path}:5",
        "providers": f"{path}:9",
        "shell": "default",
        "mcp_servers": "default",
        "skills_dirs": "default",
    }


def test_the_file_is_the_one_given_then_the_variables_then_the_users(tmp_path, written):
    """The working folder is not searched."""
    given = written('default_model = "a:given"')
    named = tmp_path / "named.toml"
    named.write_text('default_model = "a:named"')
    usual = user_file({}, home=tmp_path)
    usual.parent.mkdir(parents=True)
    usual.write_text('default_model = "a:usual"')
    variable = {"CMDC_AGENT_CONFIG": str(named)}

    found = [
        found_config(path, environ, home=tmp_path).config.default_model
        for path, environ in ((given, variable), (None, variable), (None, {}))
    ]

    assert found == ["a:given", "a:named", "a:usual"]
    assert usual == tmp_path / ".config/cmdc/config.toml"
    assert user_file({"XDG_CONFIG_HOME": "/x"}, home=tmp_path) == Path("/x/cmdc/config.toml")
    assert user_file({"XDG_CONFIG_HOME": "x"}, home=tmp_path) == usual


def test_the_daemon_takes_no_variable_of_ours_for_a_misspelt_one_of_its_own():
    """It refuses those that it does not know."""
    assert {*VARIABLES, "CMDC_AGENT_CONFIG"} <= CLIENT_VARIABLES


def test_every_wrong_key_and_value_of_a_file_is_reported_with_its_line(written):
    """All together, with what may have been meant."""
    path = written(
        'defualt_model = "openai:x"\n'
        "data_dir = 3\n"
        "[[providers]]\n"
        'models = ["openai:x"]\n'
        "[[providers]]\n"
        'model = "openai:x"\n'
    )

    found = problems_of(path)

    assert found == (
        f"{path}:1: 'defualt_model' is no key of it; did you mean default_model?",
        f"{path}:6: providers[1]: 'model' is no key of it; did you mean models?",
        f"{path}:2: data_dir: expected a path, got 3",
    )


TWO_GOOD = """[[mcp_servers]]
name = "a"
command = ["a"]
[[mcp_servers]]
name = "b"
command = ["b"]
[[mcp_servers]]
"""


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('default_model = "gpt-4o"', ":1: default_model: expected 'provider:model_id', got"),
        ("default_tools = 3", ":1: default_tools: expected a list of tools"),
        ("[provider_opts]\nstream = true", ":1: provider_opts['stream']: it is set by the"),
        ('[[providers]]\nmodels = "("', "providers[0].models: '(' is no regular expression: "),
        ("[[providers]]\nmodels = []", "providers[0].models: expected 1 to 1024 names of models"),
        ('[[providers]]\nmodels = ["x"]', "providers[0].models[0]: expected 'provider:model_id'"),
        ("[[providers]]\nmodels = 3", "a list of names, a regular expression or 'default', got 3"),
        ('[[providers]]\nbase_url = "here"', "providers[0].base_url: expected an address, such"),
        ("[[providers]]\nopts = 3", "providers[0].opts: expected a dict, got int"),
        ("providers = 3", ":1: providers: expected a list of at most 64 cmdc.ProviderConfig"),
        ("providers = [3]", "providers[0]: expected a cmdc.ProviderConfig, got int"),
        ('shell = "fish"', ":1: shell: expected one of sh, bash, zsh, got 'fish'"),
        ("skills_dirs = 3", ":1: skills_dirs: expected a list of folders"),
        ('skills_dirs = [["nobody", "x"]]', ":1: skills_dirs: Invalid enum value 'nobody'"),
        ("mcp_servers = 3", ":1: mcp_servers: expected a list of cmdc.McpServer, got 3"),
        ('[[mcp_servers]]\ncommand = ["x"]', ":1: mcp_servers[0]: it has no name"),
        ('[[mcp_servers]]\nname = "x"', ":1: mcp_servers[0]: expected a command, as"),
        ('[[mcp_servers]]\nname = "x"\nurls = "y"', ":3: mcp_servers[0]: 'urls' is no key of it"),
        ('zebra = "x"', ":1: 'zebra' is no key of it; there are data_dir, default_model, "),
        (TWO_GOOD + 'name = "x"', ":7: mcp_servers[2]: expected a command, as"),
        (TWO_GOOD + 'command = ["x"]', ":7: mcp_servers[2]: it has no name"),
        (TWO_GOOD + 'name = "x"\n\nurl = "x"', ":10: mcp_servers[2].url: expected http"),
        ('mcp_servers = [{name = "x"}]', ":1: mcp_servers[0]: expected a command, as"),
        ("[[providers]]\n[[providers]]\nmodels = 3", ":3: providers[1].models: expected"),
        ("# \u2028\nshell = 3", ":2: shell: expected one of sh, bash, zsh, got 3"),
        ("= 3", ":1: Invalid statement (at line 1, column 1)"),
        ("shell = 1\nshell = 2", ":2: Cannot overwrite a value"),
        ("shell = 1\n\nshell = [\n1,\n2]\n", ":3: Cannot overwrite a value (at line 5, column 3)"),
        ("[a]\n[b]\n[a]", ":3: Cannot declare ('a',) twice"),
        ("a = 1\nb = [1,\n2\nc = 3\n\n", ":2: Unclosed array (at line 4, column 1)"),
        ("a = 1\nb = [1,\n", ":2: Invalid value"),
        ("#" * (FILE_BYTES_MAX + 1), ": it has more than 1,048,576 bytes"),
    ],
)
def test_a_wrong_value_is_reported_by_its_place(written, text, reported):
    """A file that can't be read, too."""
    (problem,) = problems_of(written(text))

    assert reported in problem


def test_the_place_of_a_table_is_that_in_the_file(written):
    """Others before it that are wrong count as well."""
    path = written('[[providers]]\nmodel = "x"\n[[providers]]\nmodels = []\n')

    assert [problem.split(": ")[:2] for problem in problems_of(path)] == [
        [f"{path}:2", "providers[0]"],
        [f"{path}:4", "providers[1].models"],
    ]


def test_a_text_that_is_no_utf8_and_a_large_broken_one_have_their_line(tmp_path):
    """Of the second one the line where its reader stopped."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"a = 1\nb = '\xff'")
    (first,) = problems_of(path)
    path.write_text("a = [\n" + "1,\n" * 100_000)
    (second,) = problems_of(path)

    assert first.startswith(f"{path}:2: 'utf-8' codec can't decode")
    assert second == f"{path}:100001: Invalid value"


def test_a_file_that_is_not_there_is_an_error_where_it_was_named(tmp_path):
    """The user's own may be missing."""
    gone = tmp_path / "gone.toml"

    assert problems_of(gone) == (f"{gone}: No such file or directory",)
    assert problems_of(None, {"CMDC_AGENT_CONFIG": str(gone)}) == problems_of(gone)
    assert problems_of("a\0b") == ("path: 'a\\x00b' has a NUL, which no path has",)
    assert problems_of(3) == ("path: expected the path of a TOML file, got 3",)


def test_a_wrong_variable_is_reported_by_its_name():
    """As a wrong line of a file is."""
    (problem,) = problems_of(None, {"CMDC_MODEL": "gpt"})

    assert problem.startswith("CMDC_MODEL: default_model: expected 'provider:model_id'")


def test_no_credential_is_shown(written):
    """Neither by what prints a config, nor by what lists it."""
    found = found_config(written(FILE), {}, home=Path("/nowhere"))

    assert KEY not in repr(found.config)
    assert KEY not in str(config_rows(found))
    assert {row[0]: row[1] for row in config_rows(found)}["provider_opts"] == {
        "temperature": 0.1,
        "api_key": HIDDEN,
    }


def test_the_first_entry_that_names_a_model_says_how_it_is_reached(written):
    """What no entry names has that of "default"; options of an entry outrank those of all."""
    config = found_config(written(FILE), {}, home=Path("/nowhere")).config

    assert config.opts_of("openai:local-a") == {
        "temperature": 0.9,
        "api_key": KEY,
        "api_base": "http://127.0.0.1:8000/v1",
    }
    assert config.opts_of("openai:not-local-a")["api_base"] == "http://127.0.0.1:9000/v1"
    assert Config(provider_opts={"a": 1}).opts_of("x:y") == {"a": 1}
    assert ProviderConfig(models=["x:y"]).is_for("x:y")
    assert not ProviderConfig().is_for("x:y")


def test_what_an_agent_is_given_outranks_its_config():
    """Options first, then the blueprint, then the config."""
    config = Config(
        default_model="openai:c",
        default_tools=["shell"],
        provider_opts={"temperature": 0.1, "timeout": 5},
    )
    blueprint = cmdc.Blueprint(model="openai:b", name="B")

    bare = parse(None, {"config": config})
    built = parse(None, {"config": config, "blueprint": blueprint})
    given = parse(
        Options(config=config),
        {"model": "openai:g", "tools": [], "provider_opts": {"temperature": 0.2}},
    )

    assert (bare.model, bare.tools) == ("openai:c", ["shell"])
    assert (built.model, built.tools) == ("openai:b", ["shell"])
    assert (given.model, given.tools) == ("openai:g", [])
    assert given.provider_opts == {"temperature": 0.2, "timeout": 5}


def test_a_subagent_of_another_model_is_reached_as_the_config_says():
    """One with options of its own, or with its parent's model, keeps what it has."""
    config = Config(providers=[ProviderConfig(models=["x:y"], base_url="http://h/v1")])
    kinds = [
        SubAgent(name="a", description="A.", model="x:y"),
        SubAgent(name="b", description="B.", model="x:y", provider_opts={"timeout": 1}),
        SubAgent(name="c", description="C."),
    ]

    found = parse(None, {"config": config, "model": "x:z", "subagents": kinds}).subagents

    reported = [one.provider_opts for one in found]
    assert reported == [{"api_base": "http://h/v1"}, {"timeout": 1}, None]


def test_a_wrong_config_is_reported_by_field():
    """As any option."""
    assert problems(config=3) == (
        "config: expected a cmdc.Config, such as Config.load() returns, got 3",
    )
    wrong = Config(default_model="x", providers=[ProviderConfig(base_url="here")])
    assert [one.partition(":")[0] for one in problems(config=wrong)] == [
        "config.default_model",
        "config.providers[0].base_url",
    ]
    with pytest.raises(InvalidFields, match="did you mean default_model"):
        Config(defualt_model="x:y")


def test_the_folders_are_the_users_alone(tmp_path, monkeypatch):
    """They are in ``~/.cmdc`` where nothing else is said, and made on demand."""
    monkeypatch.setenv("HOME", str(tmp_path))
    config = Config(data_dir="~/data")

    config.ensure_dirs()
    config.ensure_dirs()

    assert Config().data_path == tmp_path / ".cmdc"
    assert (config.logs_dir, config.sessions_dir) == (
        tmp_path / "data/logs",
        tmp_path / "data/sessions",
    )
    assert {oct(one.stat().st_mode & 0o777) for one in (config.data_path, config.logs_dir)} == {
        "0o700"
    }


def test_shell_servers_and_skills_of_a_file(written):
    """They are what the options would be, and what is given to an agent takes their place."""
    text = (
        'shell = "sh"\nskills_dirs = ["a", ["team", "b"]]\n'
        f'[[mcp_servers]]\nname = "files"\ncommand = ["files"]\nenv = {{TOKEN = "{KEY}"}}\n'
    )
    found = found_config(written(text), {}, home=Path("/nowhere"))
    server = cmdc.McpServer("files", command=["files"], env={"TOKEN": KEY})
    other = cmdc.McpServer("other", url="http://127.0.0.1:1/mcp")

    assert found.config == Config(
        shell="sh", skills_dirs=["a", ["team", "b"]], mcp_servers=[server]
    )
    assert {row[0]: row[2][-2:] for row in config_rows(found)} | {"shell": ":1"} == {
        **dict.fromkeys(FIELDS, "lt"),
        "shell": ":1",
        "skills_dirs": ":2",
        "mcp_servers": ":3",
    }
    assert KEY not in str(config_rows(found))
    bare = parse(None, {"config": found.config})
    given = parse(None, {"config": found.config, "mcp_servers": [other], "skills_dirs": []})
    assert (bare.mcp_servers, bare.skills_dirs) == ([server], [("", "a"), ("team", "b")])
    assert (given.mcp_servers, given.skills_dirs) == ([other], [])


def test_the_shells_are_those_of_the_sandbox():
    """The config stands below it, and has a list of its own."""
    assert get_args(ShellKind) == SHELLS
