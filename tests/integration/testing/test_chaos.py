"""``Chaos`` as a user has it: a process dies at the moment that is named, and the audit is real."""

import contextlib
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import faults
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.testing import Chaos, ScriptedModel, ToolCalls, ToolUse
from cmdc_runtime.testing.audit import calls_repeated, history_problems

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.fault]

REPLY_S = 60.0
UNCERTAIN = "may or may not have taken effect"


def pay_to(path, effects="write"):
    """Make a tool that leaves a line in a file each time it runs."""

    @cmdc.tool(effects=effects)
    def pay(euros: int) -> str:
        """Pay."""
        with Path(path).open("a") as file:
            file.write(f"{euros}\n")
        return f"paid {euros}"

    return pay


def played(folder, *, effects="write", calls=1, stop=False, **chaos):
    """Have an agent pay while a process dies; return what was paid, what was said, the audit."""
    ledger = folder / "paid"
    steps = [ToolCalls(*(ToolUse("pay", {"euros": n}) for n in range(calls)))]
    with Chaos(**chaos) as storm, ScriptedModel(steps, default="done") as model:
        with contextlib.ExitStack() as stack:
            session = cmdc.create_agent(model=model, tools=[pay_to(str(ledger), effects)])
            if stop:
                stack.callback(session.stop)
            receipt = session.prompt("Pay.")
            text = session.collect_reply(timeout=REPLY_S)
            results = [one.content for one in session.messages() if one.role == "tool_result"]
        audited = storm.audit(accepted=[receipt])
    paid = ledger.read_text().split() if ledger.exists() else []
    return paid, results, text, audited


@pytest.mark.parametrize("kill", ["agent", "daemon", "zygote"])
def test_who_is_named_dies_once_a_call_has_begun(tmp_path, kill):
    """A write tool runs once or not at all, and what the model reads says which."""
    paid, results, text, audited = played(tmp_path, kill=kill, at="after_tool_start")

    assert (text, audited.kills, audited.sessions, audited.prompts) == ("done", 1, 1, 1)
    assert audited.recovered == (kill == "agent")
    if kill == "agent":
        assert paid == []
        assert UNCERTAIN in results[0]
    else:
        assert (paid, results) == (["0"], ["paid 0"])


def test_a_call_whose_end_is_not_kept_is_not_made_again(tmp_path):
    """It has paid, and nobody knows: the model reads so, and nothing is paid twice."""
    paid, results, _, audited = played(tmp_path, kill="agent", at="before_tool_end")

    assert paid == ["0"]
    assert UNCERTAIN in results[0]
    assert (audited.kills, audited.recovered) == (1, 1)


def test_a_tool_that_may_run_again_does(tmp_path):
    """What it left is there twice, which ``idempotent`` says is fine."""
    paid, results, _, _ = played(tmp_path, kill="agent", at="before_tool_end", effects="idempotent")

    assert (paid, results) == (["0", "0"], ["paid 0"])


def test_the_process_that_forks_calls_dies(tmp_path):
    """At the second call, when there is one for certain; the session's process lives on."""
    paid, results, _, audited = played(
        tmp_path, kill="tool_host", at="before_tool_end", nth=1, calls=2
    )

    assert len(results) == 2
    assert set(paid) <= {"0", "1"}
    assert (audited.kills, audited.recovered, audited.calls) == (1, 0, 2)


def test_a_session_that_has_ended_is_judged_by_its_events(tmp_path):
    """Its conversation is not asked for any more."""
    _, _, _, audited = played(tmp_path, kill="agent", at="after_response", stop=True)

    assert (audited.kills, audited.sessions) == (1, 1)


def test_a_moment_that_does_not_come_is_reported(tmp_path):
    """A test that kills nobody shows nothing: the audit fails."""
    with pytest.raises(AssertionError, match="nobody was killed: kill='agent' at='after_tool_end'"):
        played(tmp_path, kill="agent", at="after_tool_end", nth=5)


def test_an_acknowledged_prompt_that_no_session_knows_is_reported(tmp_path):
    """What was acknowledged and is not there is lost."""
    # The agent does not wait for that write: its first request may be on its way when it dies.
    with (
        Chaos(kill="agent", at="after_cycle_start") as storm,
        ScriptedModel([], default="hi") as model,
    ):
        session = cmdc.create_agent(model=model)
        session.run("Hello", timeout=REPLY_S)
        with pytest.raises(AssertionError, match="prompt c-none was acknowledged, and no session"):
            storm.audit(accepted=["c-none"])


def test_a_call_in_two_processes_is_reported(tmp_path, monkeypatch):
    """Of a tool that writes; one that may run again may."""
    monkeypatch.setattr(faults, "_folder", tmp_path)
    for effects in ("write", "write", "read", "read"):
        faults.note_call("s", f"of {effects}", effects)
    noted = (tmp_path / "s.calls").read_text().splitlines()

    assert calls_repeated(noted) == [
        "call of write of a tool with effects='write' ran 2 times",
    ]


def test_conversations_that_no_provider_takes_are_reported():
    """A call without its result, a result without its call, two answers in a row."""
    asking = Message(
        role="assistant", content="", tool_calls=(ToolCall(call_id="a", name="x", arguments={}),)
    )
    hello = Message(role="user", content="hello")
    fine = Message(role="assistant", content="fine")

    assert history_problems([hello, fine]) == []
    assert any("no result of a" in one for one in history_problems([hello, asking, hello]))
    assert any("no result of a" in one for one in history_problems([hello, asking]))
    assert any("twice in a row" in one for one in history_problems([hello, fine, fine]))
    assert any("the first word" in one for one in history_problems([fine]))
    stray = Message(role="tool_result", content="x", call_id="b")
    assert any("not asked for" in one for one in history_problems([hello, fine, stray]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kill": "me", "at": "after_tool_start"}, "kill: one of agent, tool_host"),
        ({"kill": "agent", "at": "noon"}, "at: one of after_prompt"),
        ({"kill": "agent", "at": "after_tool_end", "nth": 0}, "nth: a number from 1 to 1000"),
        ({"kill": "agent", "at": "after_tool_end", "nth": True}, "nth: a number from 1 to 1000"),
    ],
)
def test_what_is_not_there_is_refused(given, words):
    """By its name, before anything starts."""
    with pytest.raises(ValueError, match=words):
        Chaos(**given)
