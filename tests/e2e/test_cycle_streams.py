"""``stream`` and ``stream_events``: the cycle of one prompt, and its end whatever that is."""

import asyncio
import gc
import os
import signal
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
ANSWER = "Forty-two, and here is why it is not forty-three."


@cmdc.tool(effects="read")
def quick() -> str:
    """Return at once."""
    return "quick"


def streams_of(client):
    """Return how many streams the client fills."""
    return client._run(_streams)


async def _streams(calls):
    connection = await calls._connector.connected()
    return len(connection.dispatcher)


def in_thread(work, *arguments):
    """Run something beside, and return what waits for it."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


def test_the_pieces_are_the_answers_of_the_prompt(agent, scripted, client):
    """Those before and after a tool call; then nothing is followed any more."""
    before = streams_of(client)
    model = scripted(
        ToolCalls(ToolUse("quick", {}), text="Let me look. "), Text(ANSWER, chunk_chars=5)
    )
    session = agent(model, tools=[quick])
    pieces = list(session.stream("Go.", timeout=TURN_S))

    assert len(pieces) > 5
    assert "".join(pieces) == f"Let me look. {ANSWER}"
    assert session.collect_reply(timeout=TURN_S) == ANSWER
    assert streams_of(client) == before


def test_an_aborted_cycle_has_the_ends_of_its_calls(agent, scripted):
    """They come before the cycle's own end, with which the stream ends."""

    @cmdc.tool(effects="read")
    async def slow() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    session = agent(scripted(ToolCalls(ToolUse("slow", {}, id="c"))), tools=[slow])
    seen = []
    for event in session.stream_events("Go.", timeout=TURN_S):
        seen.append(event.kind)
        if event.kind == "tool_execution_start":
            session.abort(reason="enough")

    assert seen[-2:] == ["tool_execution_end", "agent_abort"]


def test_the_events_are_those_of_the_cycle(agent, scripted):
    """From its start to its end; queued prompts are other cycles."""
    session = agent(scripted("one", "two", "three"))
    first, second = session.stream_events("1"), session.stream_events("2")
    pieces = session.stream("3")
    found = list(second)

    assert isinstance(found[0], events.AgentStart)
    assert isinstance(found[-1], events.AgentEnd)
    assert "".join(one.delta for one in found if isinstance(one, events.MessageDelta)) == "two"
    assert len({one.command_id for one in (found[0], found[-1])}) == 1
    assert "".join(pieces) == "three"
    assert isinstance(list(first)[-1], events.AgentEnd)


def test_an_abort_is_raised_where_no_event_reports_it(agent, scripted):
    """Of the running cycle and of a dropped prompt; the events report it themselves."""
    model = scripted((Text("Half"), Hold(), "never"))
    session = agent(model)
    running, dropped = session.stream("Go."), session.stream("And.")
    waiting, last = session.stream_events("Then."), session.stream_events("Or.")
    assert next(running) == "Half"
    session.abort(reason="enough")
    with pytest.raises(cmdc.AgentAborted) as ended:
        next(running)
    with pytest.raises(cmdc.AgentAborted) as gone:
        list(dropped)

    assert (ended.value.reason, gone.value.reason) == ("enough", "dropped")
    assert list(running) == []
    assert [one.kind for one in waiting] == ["prompt_dropped"]
    assert [one.kind for one in last] == ["prompt_dropped"]


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"max_turns": 1}, cmdc.AgentAborted, "max_turns_exceeded"),
        ({"max_total_tokens": 1}, cmdc.AgentAborted, "max_total_tokens"),
        ({"cycle_timeout": 1.0}, cmdc.AgentAborted, "cycle_timeout"),
    ],
)
def test_a_limit_is_raised(agent, scripted, options, error, reason):
    """As the abort that it is."""
    steps = [ToolCalls(ToolUse("quick", {}))]
    steps += [Hold()] if "cycle_timeout" in options else ["never"]
    session = agent(scripted(*steps), tools=[quick], **options)
    with pytest.raises(error) as ended:
        list(session.stream("Go.", timeout=TURN_S))

    assert reason in str(ended.value.reason)


def test_a_failure_is_raised(agent, scripted):
    """The provider has failed for good."""
    session = agent(scripted(Error(400, "no")), max_retries=0)
    with pytest.raises(cmdc.AgentFailed):
        list(session.stream("Go.", timeout=TURN_S))


def test_the_end_of_the_session_is_raised(agent, scripted):
    """Also where only events are read, since none reports it."""
    for read in (cmdc.stream, cmdc.stream_events):
        model = scripted((Text("Half"), Hold(), "never"))
        session = agent(model)
        pieces = read(session, "Go.")
        next(pieces)
        session.stop()
        with pytest.raises(cmdc.SessionNotAlive):
            list(pieces)
        with pytest.raises(cmdc.SessionNotAlive):
            read(session, "Go.")


def test_the_time_is_over(agent, scripted):
    """It is for all of the cycle, which goes on."""
    session = agent(scripted((Text("Half"), Hold(), "never")))
    pieces = session.stream("Go.", timeout=1.0)
    with pytest.raises(cmdc.CollectTimeout):
        list(pieces)

    assert session.status().state == "streaming"
    with pytest.raises(cmdc.InvalidText):
        session.stream("")


def test_whoever_leaves_leaves_nothing(agent, scripted, client):
    """By a break, by close, by with, or by not even beginning."""
    before = streams_of(client)
    session = agent(scripted(*[Text(ANSWER, chunk_chars=5)] * 4))
    for _ in session.stream("1"):
        break
    with session.stream_events("2") as heard:
        next(heard)
    closed = session.stream("3")
    closed.close()
    session.stream("4")
    gc.collect()

    assert list(closed) == []
    assert streams_of(client) == before
    assert session.collect_reply(timeout=TURN_S) == ANSWER


@pytest.mark.parametrize(
    ("again", "whole"),
    [(ANSWER, ANSWER), ("Forty-three.", ANSWER[:20] + "Forty-three."), ("Forty", ANSWER[:20])],
    ids=["same", "other", "less"],
)
def test_a_kill_in_mid_answer(agent, scripted, again, whole):
    """What was said is not said again; another answer is said from its beginning."""
    model = scripted((Text(ANSWER[:20], chunk_chars=4), Hold(), "never"), again)
    session = agent(model)
    heard = session.stream("Go.", timeout=TURN_S)
    found = next(heard)
    while found != ANSWER[:20]:
        found += next(heard)
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)

    assert found + "".join(heard) == whole


def test_a_cycle_that_kills_its_process_is_given_up(agent, scripted):
    """The reason says so."""
    model = scripted((Text("Half"), Hold(), "never"))
    session = agent(model, max_cycle_crashes=1)
    heard = session.stream("Go.", timeout=TURN_S)
    next(heard)
    os.kill(session.agent_pid(), signal.SIGKILL)
    with pytest.raises(cmdc.AgentAborted) as ended:
        list(heard)

    assert ended.value.reason.startswith("crashed(")


def test_coroutines_have_the_same(cmdc_daemon, scripted):
    """By the methods and by the functions of ``aio``; a break leaves nothing."""
    model = scripted("one", "two", "three", "four", (Text("Half"), Hold(), "never"), Hold())

    async def main():
        async with (
            cmdc.AsyncClient(cmdc_daemon.address) as client,
            await client.create_agent(model=model) as session,
        ):
            pieces = [piece async for piece in session.stream("1", timeout=TURN_S)]
            heard = [event async for event in cmdc.aio.stream_events(session, "2")]
            async for _ in session.stream("3"):
                break
            async with session.stream_events("4") as read:
                await anext(read)
            await asyncio.sleep(0)
            connection = await client._connector.connected()
            assert len(connection.dispatcher) == 0
            half = session.stream("5")
            await anext(half)
            await session.abort(reason="enough")
            with pytest.raises(cmdc.AgentAborted):
                await anext(half)
            with pytest.raises(cmdc.CollectTimeout):
                [piece async for piece in session.stream("6", timeout=0.5)]
        return "".join(pieces), [heard[0].kind, heard[-1].kind]

    assert asyncio.run(main()) == ("one", ["agent_start", "agent_end"])
