"""The forms in which plugins are given, what is refused before a session starts, and subagents."""

import os
import subprocess
import sys

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
PROGRAM_S = 60.0
BY_NAME = "workers.builtin.plugins.cost_guard:CostGuard"
SCRIPT = """
import os
import re

import msgspec

import cmdc_runtime as cmdc

RIVALS = ["acme", "globex"]


def found_in(text):
    return [name for name in RIVALS if re.search(name, text)]


class Discreet(cmdc.Plugin):
    class State(msgspec.Struct):
        kept: int = 0

    def before_prompt(self, event, context):
        if names := found_in(event.text):
            self.state.kept += 1
            return cmdc.Abort(f"{names} {self.state.kept} in {__name__}")


model, options = os.environ["CMDC_MODEL"], {"api_base": os.environ["CMDC_BASE"], "api_key": "x"}
with cmdc.create_agent(model=model, provider_opts=options, plugins=[Discreet]) as session:
    for text in ("hello", "buy from acme", "or globex"):
        try:
            print(session.run(text).text)
        except cmdc.CmdcError as error:
            print(error)
"""


class Herald(cmdc.Plugin):
    """Publishes a word at each prompt."""

    class Config(msgspec.Struct, frozen=True):
        word: str = "hear"
        times: int = 1

    class State(msgspec.Struct):
        reported: int = 0

    def before_prompt(self, _event, context):
        """Publish it."""
        self.state.reported += 1
        word = " ".join([self.config.word] * self.config.times)
        return cmdc.Emit("published", [word, self.state.reported, str(context.session_id)])


def prepared():
    """Return an instance that remembers something already."""
    herald = Herald(word="oyez")
    herald.state.reported = 6
    return herald


def reported(stream):
    return stream.get(TURN_S).event.payload


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Herald, ["hear", 1]),
        (Herald(word="oyez", times=2), ["oyez oyez", 1]),
        (prepared(), ["oyez", 7]),
        ((Herald, {"times": 3}), ["hear hear hear", 1]),
    ],
    ids=["class", "instance", "instance with a state", "class with options"],
)
def test_own_plugins_by_value(agent, scripted, given, expected):
    """As a class or made already, with options and state."""
    session = agent(scripted("fine"), plugins=[given])
    stream = session.subscribe(since=0, types=["plugin_event"])
    session.run("Go.", timeout=TURN_S)

    assert reported(stream) == [*expected, session.id]


@pytest.mark.parametrize(
    "given",
    [
        cmdc.plugins.CostGuard(max_tokens=1),
        (cmdc.plugins.CostGuard, {"max_tokens": 1}),
        (BY_NAME, {"max_tokens": 1}),
        ("cost_guard", {"max_tokens": 1}),
    ],
    ids=["reference", "class", "module:Class", "short name"],
)
def test_plugins_by_name(agent, scripted, given):
    """They are made where the session runs."""
    session = agent(scripted("fine"), plugins=[given])
    session.run("Go.", timeout=TURN_S)
    with pytest.raises(cmdc.CmdcError, match="max_tokens"):
        session.run("On.", timeout=TURN_S)


def test_a_plugin_of_a_script_travels_by_value(cmdc_daemon, scripted, tmp_path):
    """With the functions and constants of the script that it uses."""
    program = tmp_path / "program.py"
    program.write_text(SCRIPT)
    name, options = scripted("hi").model_source()
    env = {"CMDC_ADDRESS": str(cmdc_daemon.address), "CMDC_MODEL": name}
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **env, "CMDC_BASE": options["api_base"]},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    hello, acme, globex = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert hello == "hi"
    assert "['acme'] 1 in __main__" in acme
    assert "['globex'] 2 in __main__" in globex


# --- what is refused ----------------------------------------------------------------------------


class Strict(cmdc.Plugin):
    """Takes options that are not easy to please."""

    class Config(msgspec.Struct, frozen=True):
        limit: int
        names: list[str] = []

    def before_prompt(self, event, context):
        """Say nothing."""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((Strict, {"limit": "x", "names": 3, "bogus": 1}), ["strict", "limit", "names", "bogus"]),
        (Strict, ["strict", "limit"]),
        ((Herald, {"wrod": "x"}), ["herald", "wrod"]),
        (42, ["42", "no plugin"]),
        (cmdc.tool, ["no plugin"]),
        (("cost_guard", {"max_tokens": object()}), ["cost_guard", "option 'max_tokens'"]),
    ],
    ids=["all wrong", "missing", "unknown", "number", "function", "unfit"],
)
def test_what_cannot_be_is_refused_at_once(client, scripted, given, words):
    """The error names the plugin's place in the list, and everything that is wrong."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        client.create_agent(model=scripted(), plugins=[Herald, given])
    text = str(caught.value)

    assert "plugins[1]" in text
    assert [word for word in words if word not in text] == []


def test_actions_that_a_hook_does_not_take_are_refused_at_once(client, scripted):
    """Where the annotation of the method says so."""

    class Eager(cmdc.Plugin):
        def before_compact(self, event, context) -> cmdc.Abort | None:
            """Want too much."""
            return cmdc.Abort("no")

    with pytest.raises(cmdc.InvalidOptions, match=r"eager.*before_compact"):
        client.create_agent(model=scripted(), plugins=[Eager])


def test_two_plugins_of_one_name_are_refused(client, scripted):
    """Their states could not be distinguished."""
    with pytest.raises((cmdc.InvalidOptions, cmdc.StartFailed), match="herald"):
        client.create_agent(model=scripted(), plugins=[Herald, Herald(word="two")])

    assert client.list_sessions() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("no.such.module:Guard", "no.such.module"),
        ("no_such_plugin", "no_such_plugin"),
        ((BY_NAME, {"max_tokens": -1}), "max_tokens"),
    ],
)
def test_what_cannot_be_loaded_fails_the_start(client, scripted, given, words):
    """It is known where the session runs only."""
    with pytest.raises((cmdc.StartFailed, cmdc.InvalidOptions), match=words):
        client.create_agent(model=scripted(), plugins=[given])

    assert client.list_sessions() == []


# --- subagents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "words"),
    [(None, ["hear"]), ([], []), ([(Herald, {"word": "child"})], ["child"])],
    ids=["inherited", "none", "of its own"],
)
def test_a_subagent_has_its_parents_plugins_or_its_own(agent, client, scripted, own, words):
    """A plugin is made anew for it: it remembers nothing of the parent's."""
    task = ToolUse("task", {"description": "Dig.", "subagent_type": "digger"})
    below = scripted("dug")
    digger = cmdc.SubAgent("digger", "Digs.", model=below, plugins=own)
    with client.subscribe_all() as stream:
        session = agent(scripted(ToolCalls(task), "done"), plugins=[Herald], subagents=[digger])
        session.run("Go.", timeout=TURN_S)
        heard = heard_until_end(stream, session.id)

    assert heard.pop(session.id) == [["hear", 1, session.id]]
    assert [reported for one in heard.values() for reported in one] == [
        [word, 1, f"{session.id}.1"] for word in words
    ]


def heard_until_end(stream, session_id):
    """Return what plugins published up to the end of this session's cycle, for each session."""
    heard = {}
    while True:
        envelope = stream.get(TURN_S)
        if envelope.event.kind == "plugin_event":
            heard.setdefault(envelope.session_id, []).append(envelope.event.payload)
        if envelope.event.kind == "agent_end" and envelope.session_id == session_id:
            return heard
