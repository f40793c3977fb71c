"""What was said: recorded if wanted, as messages of the conventions, and no more than fits."""

import json

import pytest

from cmdc_runtime import events as ev
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.builtin.telemetry.calls import (
    MESSAGES_CHARS_MAX,
    TEXT_CHARS_MAX,
    arguments_json,
    messages_json,
    text_of,
)
from workers.builtin.telemetry.spans import Facts
from workers.builtin.telemetry.tracker import PROMPTS_MAX

MODEL = "openai:gpt-5"
SECRET = "the launch code is 0000"
AGENT, CHAT, TOOL = "invoke_agent", "chat gpt-5", "execute_tool shell"
START = ev.AgentStart(command_id="c-1")
REQUEST = ev.RequestStart(model=MODEL, messages=1)
DONE = Message(role="assistant", content=SECRET, metadata={"finish_reason": "stop"})
ANSWER = ev.ResponseComplete(message=DONE)
END = ev.AgentEnd(messages=(Message.user("Go."), DONE), usage=TokenUsage(), command_id="c-1")


def call(number):
    return ev.ToolExecutionStart(name="shell", call_id=f"t-{number}", args={"command": SECRET})


def returned(number, *, ok=True):
    return ev.ToolExecutionEnd(name="shell", call_id=f"t-{number}", ok=ok, text=SECRET)


def test_content_is_recorded_where_it_is_wanted(drawing_of):
    """Prompt, answers, arguments, results and texts of errors, where the conventions have them."""
    said = ev.PromptReceived(text="Go.", queued=False, command_id="c-1")
    facts = Facts("s-1", MODEL, messages=(Message.user("Go."), DONE))
    drawing = drawing_of(captures=True).play(
        said, START, REQUEST, ANSWER, call(1), returned(1, ok=False), END, facts=facts
    )
    prompt = '[{"role":"user","parts":[{"type":"text","content":"Go."}]}]'
    answer = (
        '[{"role":"assistant","parts":[{"type":"text","content":"the launch code is 0000"}],'
        '"finish_reason":"stop"}]'
    )

    assert drawing.span(AGENT).attributes["gen_ai.input.messages"] == prompt
    assert drawing.span(AGENT).attributes["gen_ai.output.messages"] == answer
    assert drawing.span(CHAT).attributes["gen_ai.input.messages"] == prompt
    assert drawing.span(CHAT).attributes["gen_ai.output.messages"] == answer
    assert drawing.span(TOOL).attributes["gen_ai.tool.call.arguments"] == (
        '{"command":"the launch code is 0000"}'
    )
    assert drawing.span(TOOL).attributes["gen_ai.tool.call.result"] == SECRET
    assert drawing.span(TOOL).text == SECRET


def test_what_a_long_conversation_leaves_out_is_counted(drawing_of):
    """The newest messages are recorded."""
    messages = tuple(Message.user("x" * 8000) for _ in range(20))
    asked = ev.RequestStart(model=MODEL, messages=20)
    facts = Facts("s-1", MODEL, messages=messages)
    span = drawing_of(captures=True).play(START, asked, facts=facts).span(CHAT)

    assert span.attributes["cmdc.request.messages_omitted"] == 12


def test_prompts_that_never_open_a_cycle_are_forgotten(drawing_of):
    """What is dropped at once, and the oldest of many."""
    prompts = [
        ev.PromptReceived(text="Go.", queued=True, command_id=f"c-{number}")
        for number in range(PROMPTS_MAX + 1)
    ]
    drawing = drawing_of(captures=True).play(*prompts)
    drawing.play(ev.PromptDropped(text="Go.", command_id="c-1"), start=100)
    starts = [ev.AgentStart(command_id=f"c-{number}") for number in range(3)]
    drawing.play(*starts, start=101)

    assert ["gen_ai.input.messages" in span.attributes for span in drawing.spans] == [
        False,
        False,
        True,
    ]


CALL = ToolCall(call_id="t-1", name="shell", arguments={"a": 1})


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (Message.system("Be brief."), ("system", [{"type": "text", "content": "Be brief."}])),
        (Message.user("hi"), ("user", [{"type": "text", "content": "hi"}])),
        (Message.assistant(""), ("assistant", [])),
        (
            Message.assistant("Look.", (CALL,), thinking="Hm."),
            ("assistant", [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "Look."},
                {"type": "tool_call", "id": "t-1", "name": "shell", "arguments": '{"a":1}'},
            ]),
        ),
        (
            Message.tool_result("t-1", "a.txt"),
            ("tool", [{"type": "tool_call_response", "id": "t-1", "response": "a.txt"}]),
        ),
    ],
    ids=["system", "user", "empty", "assistant", "tool"],
)  # fmt: skip
def test_a_message_is_a_role_with_parts(message, written):
    """As the conventions have it."""
    [found] = json.loads(messages_json([message])[0])

    assert (found["role"], found["parts"]) == written


def test_the_newest_messages_are_kept():
    """Oldest first, as far as they fit; how many do not is recorded."""
    messages = [Message.user(f"{number} {'x' * 8000}") for number in range(20)]
    text, omitted = messages_json(messages)
    kept = [message["parts"][0]["content"].split()[0] for message in json.loads(text)]

    assert len(text) <= MESSAGES_CHARS_MAX + len(kept) + 1
    assert kept == [str(number) for number in range(omitted, 20)]
    assert omitted == 12


def test_the_newest_message_is_recorded_in_any_case():
    """However many calls it has."""
    calls = tuple(
        ToolCall(call_id=f"t-{number}", name="shell", arguments={"command": "x" * 8000})
        for number in range(20)
    )
    text, omitted = messages_json([Message.user("hi"), Message.assistant("", calls)])

    assert [message["role"] for message in json.loads(text)] == ["assistant"]
    assert omitted == 1


def test_a_long_text_is_cut():
    """It keeps its beginning, and says how much is missing."""
    text = "x" * (TEXT_CHARS_MAX + 5)

    assert text_of(text) == "x" * TEXT_CHARS_MAX + "… (5 more characters)"
    assert text_of(text[5:]) == text[5:]
    assert arguments_json({"text": text}).endswith("more characters)")
    assert text_of(text) in messages_json([Message.user(text)])[0]


def test_what_json_does_not_take_is_left_out():
    """Half of a pair, which only a broken provider sends."""
    assert arguments_json({"text": "\ud800"}) == '"UnicodeEncodeError: no JSON"'
