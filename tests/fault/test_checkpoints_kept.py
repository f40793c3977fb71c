"""What was saved and what was forked is there after the daemon was killed, too."""

import contextlib

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.sync.session import Session
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

TURN_S = 60.0
WARM_S = 120.0
"""For the zygote of a new daemon: litellm's import takes long where much else is going on."""


@cmdc.tool(effects="read")
def lucky(number: int) -> str:
    """Say whether a number is lucky."""
    return f"{number} is lucky"


def said(session):
    return [one.content for one in session.messages() if one.role in {"user", "assistant"}]


@contextlib.contextmanager
def killed(own_daemon, *names):
    """Kill the daemon and yield a client of the next one, when these sessions are up again."""
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client:
        for name in names:
            assert own_daemon.poll(lambda name=name: client.agent_pid(name), WARM_S)
        yield client


def test_checkpoints_and_forks_outlive_the_daemon(own_daemon, scripted):
    """At each step it is killed as soon as it has answered."""
    own_daemon.start()
    model = scripted("one", "two", "in the fork", "again")
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s", system_prompt="Be brief.")
        session.run("First?", timeout=TURN_S)
        made = session.checkpoint(label="first")
        session.run("Second?", timeout=TURN_S)
    with killed(own_daemon, "s") as client:
        assert client.list_checkpoints("s") == [made]
        client.resume_session("s", checkpoint_id=made.checkpoint_id, new_id="f")
    with killed(own_daemon, "s", "f") as client:
        fork = Session("f", client)
        assert said(fork) == ["First?", "one"]
        assert fork.run("Here?", timeout=TURN_S).text == "in the fork"
        client.stop("s")
        client.resume_session("s", checkpoint_id=made.checkpoint_id)
    with killed(own_daemon, "s", "f") as client:
        assert said(Session("f", client)) == ["First?", "one", "Here?", "in the fork"]
        assert said(Session("s", client)) == ["First?", "one"]
        for name in ("s", "f"):
            client.stop(name)


def test_other_options_are_taken_down_once(own_daemon, scripted):
    """What a resumed session changes after that stays, though its definition says otherwise."""
    own_daemon.start()
    first, second = scripted("one"), scripted(ToolCalls(ToolUse("lucky", {"number": 7})), "yes")
    with own_daemon.client() as client:
        with client.create_agent(model=first, session_id="s") as session:
            session.run("First?", timeout=TURN_S)
        client.resume_session("s", model=second, tools=[lucky])
    with killed(own_daemon, "s") as client:
        session = Session("s", client)
        assert session.run("Lucky?", timeout=TURN_S).text == "yes"
        session.detach_tool("lucky")
    with killed(own_daemon, "s") as client, scripted("plain") as third:
        session = Session("s", client)
        session.switch_model(third)
        assert session.run("And now?", timeout=TURN_S).text == "plain"
        assert "tools" not in third.requests[0]
        session.stop()
