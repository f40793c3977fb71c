"""The call of a tool that is the answer, as the text that it stands for."""

import pytest

from cmdc_runtime.extensions.provider import (
    FinishChunk,
    ModelRequest,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers import _answer_call
from workers.builtin.providers._answer_call import NAME, AnswerCall
from workers.builtin.providers._facts import ModelFacts
from workers.core.assemble import assemble

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GPT_4 = ModelFacts(provider="openai", model_id="gpt-4", is_listed=True, forces_calls=True)
READ = ToolSpec(name="read", description="Read.", parameters={"type": "object"})


def text(said):
    return TextChunk(text=said)


def call(name, arguments, index=0, call_id="c1"):
    """Return a call in pieces, as a wire sends it."""
    at = len(arguments) // 2
    return (
        ToolCallChunk(index=index, call_id=call_id, name=name),
        ToolCallChunk(index=index, arguments=arguments[:at]),
        ToolCallChunk(index=index, arguments=arguments[at:]),
    )


def answer(arguments, **where):
    return call(NAME, arguments, **where)


def heard(*chunks, finish="tool_calls"):
    """Return what a session makes of a reply."""
    passed = [*AnswerCall(NAME).through((*chunks, FinishChunk(reason=finish)))]
    return assemble(passed, id_prefix="m")


def test_the_arguments_are_the_text():
    """They come as they are written, and the reply has no call that would want a result."""
    reply = heard(*answer('{"n": 1}'))

    assert (reply.text, reply.tool_calls, reply.finish_reason) == ('{"n": 1}', (), "stop")
    assert reply.thinking is None


def test_the_answer_streams():
    """Nobody waits for the end of the call."""
    called = AnswerCall(NAME)
    passed = [[*called.through((chunk,))] for chunk in answer('{"n": 1}')]

    assert passed == [[], [text('{"n"')], [text(": 1}")]]


@pytest.mark.parametrize(
    ("chunks", "thought"),
    [
        ((text("Well: "), text("so."), *answer("{}")), "Well: so."),
        ((*answer("{}"), text("Done.")), "Done."),
        ((*answer("{}"), *answer('{"n": 2}', index=1, call_id="c2")), '{"n": 2}'),
        ((*answer("{}"), *answer('{"n": 2}', call_id="c2")), '{"n": 2}'),
        ((text("a"), ThinkingChunk(text="b"), *answer("{}")), "ba"),
    ],
    ids=["before", "behind", "a second answer", "of the same index", "and thoughts"],
)
def test_what_stands_beside_the_answer_is_a_thought(chunks, thought):
    """It is no part of the answer, which would be no JSON with it, and it is not lost."""
    reply = heard(*chunks)

    assert (reply.text, reply.thinking, reply.tool_calls) == ("{}", thought, ())


def test_calls_of_other_tools_are_calls():
    """With the text beside them; the model is asked again once they have run."""
    reply = heard(text("I look."), *call("read", '{"p": 1}'), text(" Now."))

    assert (reply.text, reply.finish_reason) == ("I look. Now.", "tool_calls")
    assert [(one.name, one.arguments) for one in reply.tool_calls] == [("read", {"p": 1})]


def test_an_answer_beside_a_call_ends_nothing():
    """The call runs first; what the model has guessed stays as what it said."""
    reply = heard(*answer('{"n": 1}'), *call("read", "{}", index=1, call_id="c2"))

    assert (reply.text, reply.finish_reason) == ('{"n": 1}', "tool_calls")
    assert [one.name for one in reply.tool_calls] == ["read"]


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
def test_a_text_without_a_call_is_the_answer(finish):
    """Some servers do not mind that a call is forced; why the reply ended stays."""
    reply = heard(text('{"n"'), text(": 1}"), finish=finish)

    assert (reply.text, reply.finish_reason) == ('{"n": 1}', finish)


def test_a_text_that_is_held_is_no_silence():
    """A watchdog hears of each piece, of one that shows nothing."""
    called = AnswerCall(NAME)

    assert [*called.through((text("a"),))] == [text("")]


def test_a_character_in_two_pieces_is_one():
    """JSON may write it as a pair of surrogates, cut anywhere."""
    half, other = "\ud83d", "\ude00"
    pieces = [
        ToolCallChunk(index=0, call_id="c", name=NAME),
        *(ToolCallChunk(index=0, arguments=one) for one in ('{"n":"' + half, other + '"}')),
    ]

    assert heard(*pieces).text == '{"n":"😀"}'


def test_other_chunks_pass():
    """What was used is not the answer's affair."""
    usage = UsageChunk(usage=TokenUsage(prompt_tokens=1))

    assert [*AnswerCall(NAME).through((usage,))] == [usage]


def test_a_tool_of_the_session_keeps_its_name():
    """The one for the answer has another."""
    own = ToolSpec(name=NAME, description="Mine.", parameters={"type": "object"})
    request = ModelRequest(model="m", messages=(), tools=(own,), response_format=SCHEMA)
    tool = _answer_call.answer_tool(request, SCHEMA)

    assert tool.name == f"{NAME}_"
    assert tool.parameters == SCHEMA


def test_only_what_was_asked_for_as_a_call_is_read_as_one():
    """A model that takes the schema itself, or is asked for a text, calls what it calls."""
    request = ModelRequest(model="m", messages=(), tools=(READ,), response_format=SCHEMA)
    free = ModelRequest(model="m", messages=(), tools=(READ,))

    assert isinstance(_answer_call.answer_call(request, GPT_4), AnswerCall)
    assert _answer_call.answer_call(request, ModelFacts()) is None
    assert _answer_call.answer_call(free, GPT_4) is None


def test_one_tool_is_forced_by_its_name_and_any_of_several():
    """So that the model can work with the others first."""
    tool = ToolSpec(name=NAME, description="", parameters=SCHEMA)

    assert _answer_call.forced(tool, has_others=True) == "required"
    assert _answer_call.forced(tool, has_others=False) == {
        "type": "function",
        "function": {"name": NAME},
    }
