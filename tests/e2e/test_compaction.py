"""A conversation that gets too long: summed up by size, after an overflow, and on request."""

import os
import signal
import time
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse, Truncate

TURN_S = 20.0
ANNOUNCED_S = 2.0
"""Tens of milliseconds on an idle machine; the bound is for a busy one."""
QUICK = {"retry_base_delay": 0.01, "retry_max_delay": 0.05}
SMALL = "openai/gpt-4"
"""A model whose window litellm's table knows, 8192 tokens, and whose prices: 30 and 60 dollars."""
OVERFLOW = Error(400, "Please reduce the length.", code="context_length_exceeded")
SUMMED = "The user counts, and has come to seventeen."
SUMMARY = Text(SUMMED, usage=TokenUsage(prompt_tokens=5000, completion_tokens=20))
SUMMARY_USD = 5000 * 30e-6 + 20 * 60e-6
ANSWER = "Eighteen."
FILLER = "and so on, and on. " * 125
COMPACT = ToolCalls(ToolUse("compact_conversation", {"reason": "it is long"}))


def history(count, filler=FILLER):
    """Return a conversation of ``count`` messages, 2400 characters each."""
    return [
        Message(
            id=f"old-{n}", role="user" if n % 2 == 0 else "assistant", content=f"{n} is {filler}"
        )
        for n in range(count)
    ]


@pytest.fixture
def small(agent, tmp_path):
    """Make sessions whose model has a small window, without a system prompt."""

    def create(model, **options):
        _, opts = model.model_source()
        given = {"messages": history(12), "prompt_mode": "none", **QUICK, **options}
        return agent(SMALL, provider_opts=opts, working_dir=str(tmp_path), **given)

    return create


def run_through(session, cycle_of, text="And now?"):
    """Send one prompt and return the events of its cycle."""
    stream = session.subscribe()
    session.prompt(text)
    found = [envelope.event for envelope in cycle_of(stream)]
    stream.close()
    return found


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def compactions(events):
    return of(cmdc.events.ConversationCompacted, events)


def texts(request):
    return [message["content"] for message in request["messages"]]


def is_summary_request(request):
    return request["messages"][-1]["content"].startswith("<transcript>")


def check_file(path, gone):
    """Check that the history file has each of these messages in full, once and in order."""
    text = Path(path).read_text()
    places = [text.index(message.content) for message in gone]
    assert places == sorted(places)
    assert [text.count(f"## {message.id}: {message.role}") for message in gone] == [1] * len(gone)


# --- by size ------------------------------------------------------------------------------------


def test_a_long_conversation_is_summed_up_before_the_request(small, scripted, cycle_of, tmp_path):
    """The request begins with the summary; what it replaces is in the history file in full."""
    model = scripted(SUMMARY, ANSWER)
    session = small(model)
    events = run_through(session, cycle_of)
    (reported,) = compactions(events)
    gone = 13 - reported.after + 1
    asked, sent = model.requests

    assert is_summary_request(asked)
    assert "tools" not in asked
    assert "0 is " in texts(asked)[-1]
    assert f"{gone - 1} is " in texts(asked)[-1]
    assert (reported.trigger, reported.before) == ("size", 13)
    assert reported.after < reported.before
    assert reported.history_file.startswith(str(tmp_path))
    check_file(reported.history_file, history(12)[:gone])
    assert SUMMED in texts(sent)[0]
    assert reported.history_file in texts(sent)[0]
    assert texts(sent)[1:] == [*(said.content for said in history(12)[gone:]), "And now?"]
    assert texts(sent) == [message.content for message in session.messages()][:-1]
    assert session.collect_reply() == ANSWER


def test_a_summary_is_paid_for(small, scripted, cycle_of):
    """What it used counts for the session and for the cycle that needed it."""
    used = TokenUsage(prompt_tokens=900, completion_tokens=10)
    session = small(scripted(SUMMARY, Text(ANSWER, usage=used)))
    events = run_through(session, cycle_of)
    (reported,) = compactions(events)
    cost_usd = SUMMARY_USD + 900 * 30e-6 + 10 * 60e-6

    assert (reported.usage.total_tokens, reported.usage.cost_usd) == (
        5020,
        pytest.approx(SUMMARY_USD),
    )
    assert events[-1].usage.total_tokens == 5930
    assert events[-1].usage.cost_usd == pytest.approx(cost_usd)
    assert session.status().total_tokens == 5930


def test_the_session_goes_on_and_is_summed_up_again(small, scripted, cycle_of):
    """There is one summary at most, and one history file, which has everything that went."""
    full = TokenUsage(prompt_tokens=7500, completion_tokens=10)
    model = scripted(SUMMARY, ANSWER, Text("Nineteen.", usage=full), "All of it.", "Twenty.")
    session = small(model)
    (first,) = compactions(run_through(session, cycle_of))
    assert compactions(run_through(session, cycle_of, "Then?")) == []
    (second,) = compactions(run_through(session, cycle_of, "And then?"))
    said = session.messages()

    assert first.history_file == second.history_file
    assert is_summary_request(model.requests[3])
    assert SUMMED in texts(model.requests[3])[-1]
    assert "All of it." in said[0].content
    assert sum("compacted" in message.metadata for message in said) == 1
    assert len({message.id for message in said}) == len(said)
    assert SUMMED in Path(first.history_file).read_text()
    model.assert_complete()


def test_a_kill_afterwards_changes_nothing(small, scripted, cycle_of, poll):
    """The next process has the same conversation, the same bill, and asks nobody to sum up."""
    model = scripted(SUMMARY, ANSWER, "Nineteen.")
    session = small(model)
    run_through(session, cycle_of)
    before, status = session.messages(), session.status()
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == 2)

    assert session.messages() == before
    assert session.status().token_usage == status.token_usage
    assert compactions(run_through(session, cycle_of, "Then?")) == []
    assert texts(model.requests[-1]) == [*(message.content for message in before), "Then?"]
    model.assert_complete()


def test_a_kill_amid_the_summary_asks_for_it_again(small, scripted, cycle_of):
    """The request is not lost, and the history file has everything once."""
    model = scripted((Hold(), "never"), SUMMARY, ANSWER)
    session = small(model)
    stream = session.subscribe()
    session.prompt("And now?")
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    (reported,) = compactions([envelope.event for envelope in cycle_of(stream)])

    check_file(reported.history_file, history(12)[: 13 - reported.after + 1])
    assert session.collect_reply() == ANSWER
    assert session.status().turns == 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param([Error(401, "No key.")], id="refused"),
        pytest.param([Error(500, "Busy.")] * 2, id="retried"),
        pytest.param([Truncate(after_chars=50)] * 2, id="torn"),
        pytest.param([Text(" \n")] * 2, id="empty"),
    ],
)
def test_without_a_summary_the_request_goes_out_whole(small, scripted, cycle_of, failure):
    """A summary is asked for as often as an answer; then the session goes on without."""
    model = scripted(*failure, ANSWER)
    session = small(model, max_retries=1)
    events = run_through(session, cycle_of)

    assert compactions(events) == []
    assert [is_summary_request(sent) for sent in model.requests[:-1]] == [True] * len(failure)
    assert texts(model.requests[-1]) == [*(said.content for said in history(12)), "And now?"]
    assert session.collect_reply() == ANSWER
    model.assert_complete()


def test_a_folder_that_cannot_be_written_costs_only_the_file(small, scripted, cycle_of, tmp_path):
    """The conversation is summed up all the same, and nobody is sent to a file."""
    (tmp_path / ".cmdc").write_text("in the way")
    model = scripted(SUMMARY, ANSWER)
    session = small(model)
    (reported,) = compactions(run_through(session, cycle_of))

    assert reported.history_file is None
    assert "file" not in texts(model.requests[-1])[0].partition("<summary>")[0]
    assert session.collect_reply() == ANSWER


def test_a_summary_is_within_the_budget(small, scripted, cycle_of):
    """What is left after it may not do for the request, which is then not sent."""
    costly = Text(SUMMED, usage=TokenUsage(prompt_tokens=9000, completion_tokens=900))
    model = scripted(costly, default="too much")
    session = small(model, max_total_tokens=10_000, max_tokens=100)
    events = run_through(session, cycle_of)

    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "max_total_tokens_exceeded")
    assert len(compactions(events)) == 1
    assert len(model.requests) == 1


def test_an_abort_ends_the_summary_at_once(small, scripted, cycle_of, tmp_path):
    """It is announced as ever, the provider is left, and nothing of it comes later."""
    model = scripted((Hold(), "never"), SUMMARY, ANSWER)
    session = small(model)
    stream = session.subscribe()
    session.prompt("And now?")
    model.wait_held()
    started_s = time.monotonic()
    session.abort(reason="enough")
    events = [envelope.event for envelope in cycle_of(stream)]
    assert time.monotonic() - started_s < ANNOUNCED_S
    model.wait_abandoned()

    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "enough")
    assert compactions(events) == []
    assert [said.content for said in session.messages()[:-1]] == [
        said.content for said in history(12)
    ]
    assert not (tmp_path / ".cmdc").exists()
    assert session.status().total_tokens == 0
    assert len(compactions(run_through(session, cycle_of, "Go on."))) == 1
    assert session.collect_reply() == ANSWER


# --- after an overflow --------------------------------------------------------------------------


def test_an_overflow_is_summed_up_and_asked_again(agent, scripted, cycle_of, tmp_path):
    """Whatever the window is thought to be, the provider's word counts."""
    model = scripted(OVERFLOW, SUMMED, ANSWER)
    session = agent(model, messages=history(8), working_dir=str(tmp_path), **QUICK)
    events = run_through(session, cycle_of)
    kinds = [event.kind for event in events]
    (reported,) = compactions(events)

    order = ["stream_error", "context_overflow", "conversation_compacted", "message_start"]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
    assert "retry" not in kinds
    assert reported.trigger == "overflow"
    assert SUMMED in texts(model.requests[-1])[1]
    assert session.collect_reply() == ANSWER
    assert session.status().turns == 1
    model.assert_complete()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([OVERFLOW, SUMMED, OVERFLOW], id="still-too-long"),
        pytest.param([OVERFLOW, Error(401, "No key.")], id="no-summary"),
    ],
)
def test_what_does_not_fit_in_the_end_ends_the_cycle(agent, scripted, cycle_of, tmp_path, steps):
    """One compaction for each turn, and the session stays usable."""
    model = scripted(*steps, ANSWER)
    session = agent(model, messages=history(8), working_dir=str(tmp_path), **QUICK)
    events = run_through(session, cycle_of)

    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "context_overflow")
    with pytest.raises(cmdc.AgentAborted, match="context_overflow"):
        session.collect_reply()
    assert session.run("Once more.", timeout=TURN_S).text == ANSWER
    model.assert_complete()


def test_an_overflow_after_a_compaction_by_size_is_summed_up(small, scripted, cycle_of):
    """The first one of the turn is no second one."""
    model = scripted(SUMMARY, OVERFLOW, SUMMED, ANSWER)
    events = run_through(small(model), cycle_of)

    assert [reported.trigger for reported in compactions(events)] == ["size", "overflow"]
    assert events[-1].kind == "agent_end"
    model.assert_complete()


# --- on request ---------------------------------------------------------------------------------


@pytest.fixture
def compacting(agent, tmp_path):
    """Make sessions with a long history whose model may ask for a compaction."""

    def create(model, count=12, **options):
        tools = [cmdc.tools.CompactConversation]
        given = {"messages": history(count), "working_dir": str(tmp_path), **QUICK, **options}
        return agent(model, tools=tools, **given)

    return create


def test_the_model_may_ask_for_it(compacting, scripted, cycle_of):
    """Its call is answered by a report, and the conversation stays valid around it."""
    model = scripted(COMPACT, SUMMED, ANSWER)
    session = compacting(model)
    events = run_through(session, cycle_of)
    (reported,) = compactions(events)
    (ended,) = of(cmdc.events.ToolExecutionEnd, events)
    sent = model.requests[-1]["messages"]

    assert is_summary_request(model.requests[1])
    assert (reported.trigger, reported.before, ended.ok) == ("request", 14, True)
    assert f"14 messages before, {reported.after} after" in ended.text
    assert reported.history_file in ended.text
    assert SUMMED in sent[1]["content"]
    assert [message["role"] for message in sent[-3:]] == ["user", "assistant", "tool"]
    assert sent[-2]["tool_calls"][0]["id"] == sent[-1]["tool_call_id"]
    assert session.collect_reply() == ANSWER
    model.assert_complete()


def test_a_short_conversation_is_an_error_of_the_tool(compacting, scripted, cycle_of):
    """The model reads why nothing was done."""
    model = scripted(COMPACT, ANSWER)
    session = compacting(model, count=0)
    events = run_through(session, cycle_of)
    (ended,) = of(cmdc.events.ToolExecutionEnd, events)

    assert not ended.ok
    assert "nothing to compact" in ended.text
    assert compactions(events) == []
    model.assert_complete()


def test_a_failed_summary_is_an_error_of_the_tool(compacting, scripted, cycle_of):
    """The conversation is as it was."""
    model = scripted(COMPACT, Error(401, "No key."), ANSWER)
    session = compacting(model)
    events = run_through(session, cycle_of)
    (ended,) = of(cmdc.events.ToolExecutionEnd, events)

    assert not ended.ok
    assert "no summary: " in ended.text
    assert [said.content for said in session.messages()[1:13]] == [
        said.content for said in history(12)
    ]
    model.assert_complete()


def test_a_budget_holds_for_a_summary_on_request(compacting, scripted, cycle_of):
    """It is refused like any request, before it is made."""
    call = ToolCalls(
        ToolUse("compact_conversation", {}), usage=TokenUsage(prompt_tokens=9000, total_tokens=9000)
    )
    model = scripted(call, default="too much")
    session = compacting(model, max_total_tokens=10_000, max_tokens=100)
    events = run_through(session, cycle_of)
    (ended,) = of(cmdc.events.ToolExecutionEnd, events)

    assert not ended.ok
    assert "max_total_tokens_exceeded" in ended.text
    assert len(model.requests) == 1


def test_an_abort_amid_a_compaction_on_request_changes_nothing(
    compacting, scripted, cycle_of, poll, tmp_path
):
    """The tool is immune, but without its summary there is nothing for it to wait for."""
    model = scripted(COMPACT, (Hold(), "never"), ANSWER)
    session = compacting(model, hibernate_after=0.2)
    stream = session.subscribe()
    session.prompt("And now?")
    model.wait_held()
    session.abort(reason="enough")
    events = [envelope.event for envelope in cycle_of(stream)]
    model.wait_abandoned()

    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "enough")
    assert compactions(events) == []
    assert poll(lambda: session.agent_pid() is None)  # no call runs on: the session may rest
    assert [said.content for said in session.messages()[1:13]] == [
        said.content for said in history(12)
    ]
    assert not (tmp_path / ".cmdc").exists()
    assert session.run("Next.", timeout=TURN_S).text == ANSWER
    model.assert_complete()
