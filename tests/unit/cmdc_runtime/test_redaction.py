"""What is printed of options: their names, and no credential, wherever it lies."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import plugins
from cmdc_runtime.commands import SwitchModel
from cmdc_runtime.extensions import actions
from cmdc_runtime.extensions.provider import ModelRequest
from cmdc_runtime.plugins.thinking import Rule, UserTier
from cmdc_runtime.redaction import DEPTH_MAX, HIDDEN, SECRET_NAME, printed, shown
from cmdc_runtime.spec import agent_spec
from tests.unit.workers.builtin.providers.test_secrets import GIVEN, VALUE

MODEL = "openai:gpt-4o-mini"
STATE = {"schema_version": 1, "checkpoint_id": "c", "session_id": "s", "label": None}


def subagent(opts):
    return cmdc.SubAgent(name="a", description="d", provider_opts=opts)


HOLDERS = {
    "Options": lambda opts: cmdc.Options(model=MODEL, provider_opts=opts),
    "SubAgent": subagent,
    "Blueprint": lambda opts: cmdc.Blueprint(model=MODEL, provider_opts=opts),
    "Options, in a subagent": lambda opts: cmdc.Options(subagents=[subagent(opts)]),
    "Options, in a blueprint": lambda opts: cmdc.Options(
        blueprint=cmdc.Blueprint(options={"subagents": [subagent(opts)]})
    ),
    "Options, user_data": lambda opts: cmdc.Options(user_data={"service": opts}),
    "Options, of a plugin": lambda opts: cmdc.Options(
        plugins=["x:Y", (cmdc.Plugin, {"judge_provider_opts": opts})]
    ),
    "Snapshot": lambda opts: cmdc.Snapshot(
        **STATE, saved_at_ms=1, state={"n": [{"provider_opts": opts}], "noted": opts}
    ),
    "a command": lambda opts: SwitchModel(model=MODEL, provider_opts=opts),
    "an action": lambda opts: actions.SwitchModel(MODEL, opts),
    "ModelRequest": lambda opts: ModelRequest(
        model=MODEL, messages=(), provider_opts=opts, former_opts=(opts,)
    ),
    "Rule": lambda opts: Rule(UserTier("x"), MODEL, opts),
    "a plugin": lambda opts: plugins.ContentPolicy(judge_provider_opts=opts),
    "AgentSpec": lambda opts: agent_spec(
        cmdc.Options(model=MODEL, provider_opts=opts, subagents=[subagent(opts)])
    ),
}


@pytest.mark.parametrize("options", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_no_credential_is_printed(hold, options):
    """As the errors of a provider show none: by the same rule."""
    held = hold({**options, "temperature": 0.5, "tool_choice": "my_tool"})
    texts = [repr(held), str(held), f"{held}", repr(held.__rich_repr__())]

    assert [text for text in texts if VALUE in text or VALUE.replace("/", "%2F") in text] == []
    assert all("temperature" in text and "my_tool" in text for text in texts)


def test_headers_of_a_plugin_are_not_printed():
    """Only those that say nothing."""
    line = repr(plugins.Telemetry(headers={"X-Key": VALUE, "Accept": "application/other"}))

    assert VALUE not in line
    assert "application/other" in line


def test_short_and_long_texts_and_what_nobody_knows_are_hidden():
    """What is printed need not be readable, as an error must."""
    given = {"pin": "abc", "file": "x" * 10_000, "n": 3, "auth": object(), "kind": str, "none": ""}

    assert shown(given, ("provider_opts",)) == {
        "pin": HIDDEN,
        "file": HIDDEN,
        "n": 3,
        "auth": HIDDEN,
        "kind": str,
        "none": "",
    }


def test_options_that_hold_themselves_are_printed():
    """A circle ends."""
    circle = {"api_key": VALUE}
    circle["inner"] = circle

    line = repr(cmdc.Options(provider_opts=circle))

    assert VALUE not in line
    assert 0 < line.count("inner") <= DEPTH_MAX + 1


def test_all_that_is_no_option_is_printed_as_it_is():
    """A repr is for people who look for something else than a key."""
    line = repr(cmdc.Options(model=MODEL, system_prompt="Be brief.", max_turns=3, tools=[len]))

    assert f"model={MODEL!r}" in line
    assert "system_prompt='Be brief.'" in line
    assert "max_turns=3" in line
    assert repr(len) in line


def test_whatever_holds_options_of_a_provider_hides_them():
    """Of all public classes and their bases' fields."""
    public = [getattr(cmdc, name) for name in cmdc.__all__]
    public += [getattr(plugins, name) for name in plugins.__all__]
    holders = [
        one
        for one in public
        if isinstance(one, type)
        and issubclass(one, msgspec.Struct)
        and any(name.endswith(("_opts", "user_data", "headers")) for name in one.__struct_fields__)
    ]

    assert len(holders) > 5
    assert [one.__name__ for one in holders if one.__repr__ is not printed] == []


@pytest.mark.parametrize(
    "name",
    [
        *("PGPASS", "MY_PW", "DB_PWD", "GITHUB_PAT", "pass", "db-pass", "MYSQL_PWD", "pw", "pat"),
        *("API_TOKEN", "api-key", "SSH_PASSPHRASE", "PGPASSWORD", "client_secret"),
    ],
)
def test_a_variable_is_a_secret_by_its_words(name):
    """Its value is hidden in the environment of a server."""
    server = cmdc.McpServer("a", command=["x"], env={name: "SECRET", "LEVEL": "debug-9"})

    assert "SECRET" not in repr(server)
    assert "debug-9" in repr(server)


@pytest.mark.parametrize(
    "name",
    [
        *("path", "PATH", "compass", "pattern", "passes", "passive", "bypass", "patch", "pwn"),
        *("PWD", "OLDPWD", "pwd", "spawn", "repath", "PATIENT", "dispatch", "power", "PW3"),
    ],
)
def test_words_that_hold_the_letters_of_a_secret_are_none(name):
    """Whole words count."""
    assert SECRET_NAME.search(name) is None


COMMANDS = {
    "the next part": (["x", "--token", "SECRET"], ["x", "--token", HIDDEN]),
    "behind the sign": (["x", "--api-key=SECRET"], ["x", f"--api-key={HIDDEN}"]),
    "with a sign in it": (["x", "--api-key=SEC=RET"], ["x", f"--api-key={HIDDEN}"]),
    "one dash": (["x", "-password", "SECRET"], ["x", "-password", HIDDEN]),
    "two of them": (["--pw", "a", "--pat", "b"], ["--pw", HIDDEN, "--pat", HIDDEN]),
    "nothing behind": (["x", "--token"], ["x", "--token"]),
    "an option behind": (["--token", "--all"], ["--token", "--all"]),
    "a port": (["x", "-p", "8080"], ["x", "-p", "8080"]),
    "a path": (["--path", "/srv", "--pattern=*.py"], ["--path", "/srv", "--pattern=*.py"]),
    "a count": (["--max-tokens", "9", "--max_tokens=9"], ["--max-tokens", "9", "--max_tokens=9"]),
    "a word": (["token", "store"], ["token", "store"]),
}


@pytest.mark.parametrize(("command", "expected"), COMMANDS.values(), ids=COMMANDS)
def test_a_secret_among_the_arguments_of_a_command_is_hidden(command, expected):
    """The name of the option says so, wherever its value stands; all else can be read."""
    assert dict(cmdc.McpServer("a", command=command).__rich_repr__())["command"] == expected
