"""Listings as people see them: what waits, what has ended, and nothing broken at 80 columns."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import InvalidSession
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.programs.terminals import RUN_S, typing

pytestmark = [pytest.mark.process, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
COLUMNS = 80
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def environment(daemon):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    more = {"CMDC_ADDRESS": str(daemon.address), "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    return ours | more


def cmdc_of(daemon, *words):
    """Run one command to its end, in a pipe."""
    return subprocess.run(
        [CMDC, *words],
        env=environment(daemon),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def seen(daemon, *words):
    """Return what a person sees of a command on a terminal of 80 columns, and its raw text."""
    with typing([CMDC, *words], environment(daemon)) as terminal:
        assert terminal.status() == 0
        raw = terminal.unread
    return [line.rstrip() for line in STYLE.sub("", raw).splitlines()], raw


@cmdc.tool(needs_approval=True, meta=lambda args: f"to everybody in {args['where']}")
def deploy(where: str) -> str:
    """Deploy."""
    return f"deployed to {where}"


def test_what_waits_for_a_person_is_seen(cmdc_daemon, agent, scripted):
    """``ps`` says that an approval is waited for, ``approve`` without an id says which, and how."""
    call = ToolCalls(ToolUse("deploy", {"where": "production"}))
    session = agent(scripted(call, default="Done."), tools=[deploy], session_id="careful")
    session.run("Deploy.", timeout=RUN_S)
    lines, raw = seen(cmdc_daemon, "ps")
    listed = cmdc_of(cmdc_daemon, "approve").stdout
    shown = cmdc_of(cmdc_daemon, "show", "careful").stdout
    [approval_id] = session.status().pending_approvals
    allowed = cmdc_of(cmdc_daemon, "approve", "careful", approval_id)

    assert "waits: approval" in next(line for line in lines if line.startswith("careful"))
    assert "\x1b[33m" in raw
    what = "deploy(where='production') (to everybody in production)"
    command = f"{what}: cmdc approve careful {approval_id}"
    assert (command in listed, command in shown) == (True, True)
    assert allowed.returncode == 0


def test_nothing_is_broken_at_80_columns(cmdc_daemon, agent, scripted):
    """Long names of sessions, models and groups: each word of ps, tree and tail is a whole one."""
    name = "the-accounts-of-the-month-of-november-2026-checked-once-more-by-somebody-else"
    answer = "Every word of this answer is a whole word, however long the answer may be. " * 4
    session = agent(scripted(answer), session_id=name, group_id="accounting-department")
    session.run("Go on.", timeout=RUN_S)
    table, _ = seen(cmdc_daemon, "ps")
    tree, _ = seen(cmdc_daemon, "tree")
    piped = cmdc_of(cmdc_daemon, "ps").stdout
    session.stop()
    tail, raw = seen(cmdc_daemon, "tail", name, "--since", "0")

    assert name in table
    assert [line for line in table + tree if len(line) > COLUMNS and name not in line] == []
    assert "accounting-department" in piped
    at = next(number for number, line in enumerate(tree) if line.endswith(f"session:{name}"))
    assert tree[at + 1].lstrip("│ ").startswith("idle, ")
    words = {word for line in tail for word in line.split()}
    assert set(answer.split()) <= words
    assert [line for line in tail[:-1] if len(line) > COLUMNS] == []
    assert "\x1b[36m" in raw


def test_ended_sessions_are_listed_and_read(cmdc_daemon, client, agent, scripted):
    """The conversation, how it stood and why it ended, while the journal has them."""
    session = agent(scripted("It was a dark night."), session_id="novel")
    session.run("Begin.", timeout=RUN_S)
    session.stop(reason="finished")
    listed = {one.session_id: one for one in client.list_sessions(ended=True)}
    read = [(one.role, one.content) for one in client.messages("novel")]
    printed = json.loads(cmdc_of(cmdc_daemon, "show", "novel", "--json").stdout)
    shown = cmdc_of(cmdc_daemon, "show", "novel", "--messages").stdout

    assert (listed["novel"].state, listed["novel"].active_at_ms > 0) == ("ended", True)
    assert "novel" not in {one.session_id for one in client.list_sessions()}
    assert read[-2:] == [("user", "Begin."), ("assistant", "It was a dark night.")]
    assert (printed["status"]["state"], printed["status"]["turns"]) == ("ended", 1)
    assert printed["status"]["total_tokens"] > 0
    assert [one["content"] for one in printed["messages"]][-1] == "It was a dark night."
    assert ("It was a dark night." in shown, "finished" in shown) == (True, True)
    with pytest.raises(cmdc.SessionNotAlive):
        client.status("novel")
    with pytest.raises(InvalidSession):
        client.messages("never-written")


def test_a_session_that_failed_to_start_is_shown_with_the_reason(cmdc_daemon, client):
    """Nothing of it can be read but why it has none."""
    with pytest.raises(cmdc.StartFailed):
        client.create_agent(model="openai:scripted", session_id="stillborn", tools=["nosuch:f"])
    shown = cmdc_of(cmdc_daemon, "show", "stillborn")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "stillborn  ended" in shown.stdout
    assert "start failed at load: tool 'nosuch:f' cannot be loaded" in shown.stdout


def test_an_ended_session_goes_on_while_it_is_read(client, agent, scripted):
    """What is read of it is let go of when it is resumed, and then its own process answers."""
    model = scripted("One.", "Two.")
    session = agent(model, session_id="serial")
    session.run("First.", timeout=RUN_S)
    session.stop()
    before = [one.content for one in client.messages("serial")]
    with client.resume_session("serial") as again:
        again.run("Second.", timeout=RUN_S)
        after = [one.content for one in again.messages()]

    assert before[-1] == "One."
    assert after == [*before, "Second.", "Two."]


def test_tail_joins_pieces_and_raw_does_not(cmdc_daemon, agent, scripted):
    """A text that came in pieces is one line under the first one's number, in a pipe too."""
    session = agent(scripted(("Some ", "words ", "in ", "pieces.")), session_id="pieces")
    session.run("Go.", timeout=RUN_S)
    session.stop()
    joined = cmdc_of(cmdc_daemon, "tail", "pieces", "--since", "0").stdout.splitlines()
    raw = cmdc_of(cmdc_daemon, "tail", "pieces", "--since", "0", "--raw").stdout.splitlines()
    texts = [line for line in joined if " message_delta " in line]

    assert [line.split("message_delta")[1].strip() for line in texts] == ["Some words in pieces."]
    assert len(raw) >= len(joined)


def test_stop_takes_several_and_says_which_it_could_not(cmdc_daemon, agent, scripted):
    """One that is not there keeps none of the others from being stopped; the status says so."""
    model = scripted()
    agent(model, session_id="one")
    agent(model, session_id="two")
    done = cmdc_of(cmdc_daemon, "stop", "one", "no-such", "two")

    assert done.stdout.splitlines() == ["stopped one", "stopped two"]
    assert (done.returncode, "no-such" in done.stderr) == (1, True)


def test_watch_shows_what_changes_until_interrupted(cmdc_daemon, agent, scripted):
    """The list is drawn anew in its place, and Ctrl-C ends it as asked."""
    session = agent(scripted(("Well", Hold())), session_id="watched")
    with typing([CMDC, "ps", "--watch"], environment(cmdc_daemon)) as terminal:
        terminal.expect("idle")
        session.prompt("Go.")
        terminal.expect("streaming")
        terminal.type("\x03")

        assert terminal.status() == 0
    session.abort()


def test_logs_are_those_of_one_session(cmdc_daemon, agent, scripted, tmp_path):
    """The records about a session out of the daemon's log, with the lines that go on with one."""
    model = scripted()
    agent(model, session_id="chatty")
    agent(model, session_id="chatty-2")
    log = tmp_path / "daemon.log"
    log.write_text(
        cmdc_daemon.log_text()
        + "2026-11-28T01:02:03.4Z [error] x session_id=chatty\nTraceback: it\n"
    )
    done = cmdc_of(cmdc_daemon, "logs", "chatty", "--file", str(log))
    found = cmdc_of(cmdc_daemon, "logs", "chatty")
    lines = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert [line for line in lines if "chatty-2" in line] == []
    assert lines[-2:] == ["2026-11-28T01:02:03.4Z [error] x session_id=chatty", "Traceback: it"]
    assert any("agent.started" in line for line in lines), lines
    assert (found.returncode, found.stdout != "") == (0, True), found.stderr


def test_a_session_of_which_the_log_has_nothing_is_named(cmdc_daemon):
    """As every command does; the status says so, too."""
    done = cmdc_of(cmdc_daemon, "logs", "nobody")

    assert (done.returncode, done.stdout) == (1, "")
    assert "has nothing of session 'nobody'" in done.stderr
