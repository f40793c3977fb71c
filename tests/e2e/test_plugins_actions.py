"""What plugins answer, carried out in a running session: words, ends, models, messages, events."""

import os
import signal

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.messages import Message
from cmdc_runtime.reasons import PluginAborted
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
SMALL = "openai/gpt-4"
"""A model whose window litellm's table knows, 8192 tokens."""
OVERFLOW = Error(400, "Please reduce the length.", code="context_length_exceeded")
FILLER = "and so on, and on. " * 125
LOOK = ToolCalls(ToolUse("look", {}))


@cmdc.tool(effects="read", isolation="task")
async def look() -> str:
    """Look."""
    return "seen"


def texts(request):
    return [(said["role"], said.get("content")) for said in request["messages"]][1:]


def once(action):
    """Answer with this action, and with nothing from then on."""
    left = [action]
    return lambda *_: left.pop() if left else None


def of(kind, found):
    return [event for event in found if isinstance(event, kind)]


# --- intervene ----------------------------------------------------------------------------------


def test_words_of_several_plugins_are_one_message(agent, scripted, plugin_of):
    """Joined by blank lines in the order of priority, right after the prompt."""
    model = scripted("done")
    say = [plugin_of(f"p{at}", at, before_prompt=cmdc.Intervene(f"word {at}")) for at in (3, 1, 2)]
    session = agent(model, plugins=say)
    session.run("Go.", timeout=TURN_S)

    assert texts(model.requests[0]) == [("user", "Go."), ("user", "word 1\n\nword 2\n\nword 3")]
    assert [said.content for said in session.messages()][-2] == "word 1\n\nword 2\n\nword 3"


@pytest.mark.parametrize("hook", ["before_prompt", "before_request"])
def test_words_before_a_request_are_in_it(agent, scripted, plugin_of, hook):
    """And stay in the conversation."""
    model = scripted("one", "two")
    session = agent(model, plugins=[plugin_of(**{hook: once(cmdc.Intervene("mind"))})])
    session.run("Go.", timeout=TURN_S)
    session.run("On.", timeout=TURN_S)
    first = [("user", "Go."), ("user", "mind")]

    assert texts(model.requests[0]) == first
    assert texts(model.requests[1]) == [*first, ("assistant", "one"), ("user", "On.")]


@pytest.mark.parametrize("hook", ["after_response", "after_tool", "after_tool_batch"])
def test_words_during_a_batch_come_after_its_results(agent, scripted, plugin_of, hook):
    """The results follow their calls, whatever is said in between."""
    model = scripted(LOOK, "done")
    session = agent(
        model, tools=[look], plugins=[plugin_of(**{hook: once(cmdc.Intervene("mind"))})]
    )
    session.run("Go.", timeout=TURN_S)

    assert texts(model.requests[1])[-2:] == [("tool", "seen"), ("user", "mind")]
    assert len(model.requests) == 2


@pytest.mark.parametrize("hook", ["after_response", "before_finish"])
def test_words_after_the_last_answer_keep_the_model_working(agent, scripted, plugin_of, hook):
    """The cycle ends with the answer that nobody has anything to add to."""
    model = scripted("one", "two")
    session = agent(model, plugins=[plugin_of(**{hook: once(cmdc.Intervene("and?"))})])
    reply = session.run("Go.", timeout=TURN_S)

    assert texts(model.requests[1])[-2:] == [("assistant", "one"), ("user", "and?")]
    assert reply.text == "two"
    assert [said.role for said in reply.messages] == ["user", "assistant", "user", "assistant"]


def test_words_without_end_are_ended_by_the_turns(agent, scripted, plugin_of):
    """A plugin that always has something to add can't keep a cycle for ever."""
    endless = plugin_of(before_finish=cmdc.Intervene("more"))
    session = agent(scripted(default="so"), plugins=[endless], max_turns=3)
    with pytest.raises(cmdc.CmdcError, match="max_turns_exceeded"):
        session.run("Go.", timeout=TURN_S)


# --- abort --------------------------------------------------------------------------------------

ABORTING = [
    "before_prompt", "before_request", "after_response", "before_tool", "on_tool_error",
    "after_tool", "after_tool_batch", "before_finish",
]  # fmt: skip


@cmdc.tool(effects="write", isolation="task")
async def stumble() -> str:
    """Fail."""
    raise cmdc.ToolError("it hurts")


@pytest.mark.parametrize("hook", ABORTING)
def test_a_plugin_may_end_the_cycle_wherever_it_is(agent, scripted, plugin_of, events_until, hook):
    """The abort has its reason, is the cycle's only end, and the session lives on."""
    tool = "stumble" if hook == "on_tool_error" else "look"
    model = scripted(ToolCalls(ToolUse(tool, {})), "one", default="two")
    no = plugin_of(
        **{hook: once(cmdc.Abort("not today"))},
        after_turn=lambda event, _: cmdc.Emit("end", [event.outcome, event.abort_reason]),
    )
    session = agent(model, tools=[look, stumble], plugins=[no])
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    found = events_until(stream, "plugin_event", "end")

    assert [event.reason for event in of(events.AgentAbort, found)] == ["not today"]
    assert of(events.AgentEnd, found) == []
    assert found[-1].payload == ["aborted", "not today"]
    assert session.status().state == "idle"
    assert session.run("Again.", timeout=TURN_S).text in {"one", "two"}
    model_saw = model.requests[-1]["messages"]
    calls = [call["id"] for said in model_saw for call in said.get("tool_calls") or ()]
    assert [said["tool_call_id"] for said in model_saw if said["role"] == "tool"] == calls


def test_the_final_answer_stays_when_it_is_objected_to(agent, scripted, plugin_of):
    """It was published already; the cycle counts as aborted."""
    session = agent(scripted("one"), plugins=[plugin_of(after_response=cmdc.Abort("rude"))])
    with pytest.raises(cmdc.CmdcError, match="rude"):
        session.run("Go.", timeout=TURN_S)

    assert session.messages()[-1].content == "one"


def test_a_plugins_abort_may_end_the_session(agent, scripted, plugin_of):
    """Where the options say so, with the plugin's name; the restart type does not matter."""
    session = agent(
        scripted(),
        plugins=[plugin_of("guard", before_prompt=cmdc.Abort("no"))],
        exit_on=["plugin_aborted"],
        restart="permanent",
    )
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert (down.reason, down.restarting) == (PluginAborted(plugin="guard", why="no"), False)


class Rule(msgspec.Struct):
    """Why a guard ends a cycle."""

    name: str
    limits: tuple[int, ...] = (1, 2)


DATA = [
    ("over budget", "over budget"),
    (7, 7),
    (["a", {"b": None}], ["a", {"b": None}]),
    (("a", 1.5), ["a", 1.5]),
    ({"rule": 7}, {"rule": 7}),
    (Rule("pii"), {"name": "pii", "limits": [1, 2]}),
]


@pytest.mark.parametrize("given", DATA, ids=["str", "int", "list", "tuple", "dict", "own"])
def test_a_reason_is_reported_as_data(agent, scripted, plugin_of, given):
    """In the error, the event, the hook, and by the next process; a guard's or a caller's."""
    reason, data = given
    guard = plugin_of("guard", before_prompt=cmdc.Abort(reason), after_turn=report_outcome)
    session = agent(scripted(), plugins=[guard])
    stream = session.subscribe(since=0)
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.run("Go.", timeout=TURN_S)
    seen = reasons(stream, 2)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.abort(reason=reason)
    seen += reasons(stream, 1)
    with pytest.raises(cmdc.AgentAborted) as later:
        session.collect_reply(timeout=TURN_S)

    assert seen == [data] * 3
    assert caught.value.reason == later.value.reason == data


def reasons(stream, count):
    """Return the reasons that observers hear next: of aborts, and what the hook was given."""
    found = []
    while len(found) < count:
        match stream.get(TURN_S).event:
            case events.AgentAbort(reason=reported) | events.PluginEvent(payload={"why": reported}):
                found.append(reported)
    return found


def report_outcome(event, _context):
    return cmdc.Emit("outcome", {"why": event.abort_reason})


@pytest.mark.parametrize("reason", [object(), float("nan"), {1: 2}, "\ud800"], ids=repr)
def test_a_callers_reason_must_be_data(agent, scripted, reason):
    """The caller gets an error that says what of it is none, and nothing is ended."""
    session = agent(scripted("fine"))
    with pytest.raises(cmdc.UsageError, match="abort: reason"):
        session.abort(reason=reason)

    assert session.run("Go.", timeout=TURN_S).text == "fine"


def test_a_plugin_may_refuse_the_session(client, scripted, plugin_of):
    """The caller of ``create_agent`` reads who and why; nothing is left of it."""
    guard = plugin_of("guard", session_start=cmdc.Abort("no licence"))
    with pytest.raises(cmdc.StartFailed, match="guard: no licence"):
        client.create_agent(model=scripted(), plugins=[guard])

    assert client.list_sessions() == []


# --- skip ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["before_prompt", "before_request", "after_response"])
def test_skip_leaves_out_the_plugins_behind(agent, scripted, plugin_of, hook, cycle_of):
    """And nothing else: the cycle goes on, and words that were said before count."""
    model = scripted("one", "two")
    plugins = [
        plugin_of("a", 1, **{hook: once(cmdc.Intervene("first"))}),
        plugin_of("b", 2, **{hook: once(cmdc.Skip())}),
        plugin_of("c", 3, **{hook: once(cmdc.Abort("never asked"))}),
    ]
    session = agent(model, plugins=plugins, max_turns=1)
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    found = [one.event for one in cycle_of(stream)]

    assert "never asked" not in {getattr(event, "reason", None) for event in found}
    assert len(model.requests) == 1


def history(count):
    roles = ("user", "assistant")
    return [
        Message(id=f"old-{n}", role=roles[n % 2], content=f"{n} {FILLER}") for n in range(count)
    ]


@pytest.fixture
def small(agent, tmp_path):
    """Make sessions that are due for a compaction."""

    def create(model, **options):
        _, opts = model.model_source()
        given = {"messages": history(12), "prompt_mode": "none", **options}
        return agent(SMALL, provider_opts=opts, working_dir=str(tmp_path), **given)

    return create


def test_a_plugin_may_prevent_a_compaction(small, scripted, plugin_of, cycle_of):
    """The request is sent as it is; the plugin has read what would have gone."""
    model = scripted("as it is")
    keep = plugin_of(
        before_compact=lambda event, _: [cmdc.Emit("n", len(event.messages)), cmdc.Skip()]
    )
    session = small(model, plugins=[keep])
    stream = session.subscribe(since=0)
    session.prompt("And now?")
    found = [one.event for one in cycle_of(stream)]

    assert of(events.ConversationCompacted, found) == []
    assert [event.payload > 1 for event in of(events.PluginEvent, found)] == [True]
    assert len(model.requests[0]["messages"]) == 13


@pytest.mark.parametrize("count", [12, 8], ids=["after one by size", "by overflow"])
def test_a_plugin_may_prevent_a_compaction_that_is_needed(
    small, scripted, plugin_of, cycle_of, count
):
    """Without it the request can't be made: the cycle ends for that reason."""
    model = scripted(OVERFLOW)
    session = small(model, messages=history(count), plugins=[plugin_of(before_compact=cmdc.Skip())])
    stream = session.subscribe(since=0)
    session.prompt("And now?")
    found = [one.event for one in cycle_of(stream)]

    assert [event.reason for event in of(events.AgentAbort, found)] == ["context_overflow"]
    assert len(model.requests) == 1


def test_a_plugin_may_prevent_the_compaction_that_a_tool_wants(
    small, scripted, plugin_of, cycle_of
):
    """The tool reads who was against it."""
    ask = ToolCalls(ToolUse("compact_conversation", {"reason": "it is long"}))
    model = scripted(ask, "well")
    keep = plugin_of("refuser", before_compact=cmdc.Skip())
    session = small(model, plugins=[keep], tools=["compact_conversation"])
    stream = session.subscribe(since=0)
    session.prompt("And now?")
    found = [one.event for one in cycle_of(stream)]

    assert of(events.ConversationCompacted, found) == []
    assert "refuser" in of(events.ToolExecutionEnd, found)[0].text


# --- emit, switch_model, replace_messages -------------------------------------------------------


class Audited(msgspec.Struct):
    """An event of a plugin's own."""

    length: int


def test_observers_hear_what_plugins_emit(agent, scripted, plugin_of, cycle_of):
    """In every form, with the session's own data where there is room for it."""
    reported = cmdc.Emit(
        [("pair", {"n": 1}), Audited(2), "name", ("out", {"_no_user_data": 1}), ("list", [3])]
    )
    session = agent(
        scripted("one"), plugins=[plugin_of(before_prompt=reported)], user_data={"tenant": "t-1"}
    )
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    found = of(events.PluginEvent, [one.event for one in cycle_of(stream)])
    data = {"user_data": {"tenant": "t-1"}}

    assert [(event.name, event.payload) for event in found] == [
        ("pair", {"n": 1, **data}),
        ("audited", {"length": 2, **data}),
        ("name", None),
        ("out", {}),
        ("list", [3]),
    ]


@pytest.mark.parametrize(
    ("hook", "models"),
    [
        ("before_request", ["other", "other"]),
        ("after_response", ["scripted", "other"]),
        ("before_tool", ["scripted", "other"]),
        ("after_tool", ["scripted", "other"]),
        ("after_tool_batch", ["scripted", "other"]),
    ],
)
def test_a_plugin_may_switch_the_model(agent, scripted, plugin_of, hook, models):
    """From the next request on; the rest of the session stays as it is."""
    model = scripted(LOOK, "done")
    switch = plugin_of(**{hook: once(cmdc.SwitchModel("openai/other"))})
    session = agent(model, tools=[look], plugins=[switch])
    stream = session.subscribe(since=0, types=["model_switched"])
    session.run("Go.", timeout=TURN_S)
    reported = stream.get(TURN_S).event

    assert (reported.from_, reported.to) == ("openai/scripted", "openai/other")
    assert [request["model"] for request in model.requests] == models
    assert session.status().model == "openai/other"


def test_messages_are_replaced_for_one_request(agent, scripted, plugin_of):
    """The conversation stays as it is, and so do the requests after it."""
    model = scripted("one", "two")
    other = [Message(role="user", content="Say nothing.")]
    session = agent(model, plugins=[plugin_of(before_request=once(cmdc.ReplaceMessages(other)))])
    session.run("Go.", timeout=TURN_S)
    session.run("On.", timeout=TURN_S)

    assert texts(model.requests[0]) == [("user", "Say nothing.")]
    assert texts(model.requests[1]) == [("user", "Go."), ("assistant", "one"), ("user", "On.")]
    assert [said.content for said in session.messages()][1:] == ["Go.", "one", "On.", "two"]


def test_words_reach_the_model_with_replaced_messages(agent, scripted, plugin_of):
    """They come after those that one plugin put in the place of the conversation."""
    model = scripted("one")
    other = [Message(role="user", content="Say nothing.")]
    replace = plugin_of("a", 1, before_request=cmdc.ReplaceMessages(other))
    say = plugin_of("b", 2, before_request=cmdc.Intervene("at all"))
    session = agent(model, plugins=[replace, say])
    session.run("Go.", timeout=TURN_S)

    assert texts(model.requests[0]) == [("user", "Say nothing."), ("user", "at all")]
    assert [said.content for said in session.messages()][1:] == ["Go.", "at all", "one"]


def test_a_model_is_switched_with_its_options(agent, scripted, plugin_of):
    """Options that a plugin gives are those of the provider from then on."""
    first, second = scripted(), scripted("from the second")
    name, opts = second.model_source()
    session = agent(first, plugins=[plugin_of(before_request=cmdc.SwitchModel(name, opts))])

    assert session.run("Go.", timeout=TURN_S).text == "from the second"
    assert first.requests == []


def test_a_late_switch_is_for_the_next_request(agent, scripted, plugin_of):
    """The answer that is under way is not disturbed by it."""
    model = scripted((Text("one "), Hold(), Text("two")))
    session = agent(model, plugins=[plugin_of(after_response=cmdc.SwitchModel("openai/other"))])
    session.prompt("Go.")
    model.wait_held()
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "one two"
    assert [request["model"] for request in model.requests] == ["scripted"]


def test_an_approval_that_is_asked_for_too_late_is_the_plugins_failure(agent, scripted, plugin_of):
    """One that fails closed ends the cycle; it used to be as if it had said nothing."""
    late = plugin_of(
        "late", fail="closed", after_tool=cmdc.Emit(cmdc.RequireApproval(hint="sure?"))
    )
    session = agent(scripted(LOOK, "done"), tools=[look], plugins=[late])

    with pytest.raises(cmdc.AgentAborted, match="after_tool does not take require_approval"):
        session.run("Go.", timeout=TURN_S)
