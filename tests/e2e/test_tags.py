"""What the model says beside its answer: thinking, its status, and a title for the conversation."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Sequence, Text, Thinking

ANSWER = "<title>Two lakes</title><status>Looking at maps</status>Both are in the north."


def test_thinking_and_tags_are_kept_apart_from_the_answer(agent, scripted, cycle_of):
    """Each is an event of its own, and none of it is in the text, however it is torn apart."""
    spoken = Sequence(Thinking("Lakes. Let me see."), Text(ANSWER, chunk_chars=5))
    session = agent(scripted(spoken))
    stream = session.subscribe()
    session.prompt("Where are the lakes?")
    found = [envelope.event for envelope in cycle_of(stream)]
    thought = [one.delta for one in found if isinstance(one, cmdc.events.ThinkingDelta)]
    said = [one.delta for one in found if isinstance(one, cmdc.events.MessageDelta)]

    assert cmdc.events.ThinkingStart() in found
    assert "".join(thought) == "Lakes. Let me see."
    assert cmdc.events.TitleGenerated(title="Two lakes") in found
    assert cmdc.events.StatusUpdate(text="Looking at maps") in found
    assert "".join(said) == "Both are in the north."
    assert session.collect_reply() == "Both are in the north."


def titles(agent, scripted, cycle_of, answer, **options):
    """Return the titles that are published of an answer, and what is said of it."""
    session = agent(scripted(Text(answer, chunk_chars=3)), **options)
    stream = session.subscribe()
    session.prompt("Go.")
    found = [envelope.event for envelope in cycle_of(stream)]
    heard = [one.title for one in found if isinstance(one, cmdc.events.TitleGenerated)]
    return heard, "".join(one.delta for one in found if isinstance(one, cmdc.events.MessageDelta))


def test_tags_are_read_where_the_prompt_invites_them(agent, scripted, cycle_of):
    """By the mode, or by the application itself; else they are text."""
    answer = "<title>T</title>Text"
    invite = "Name it in <title>...</title>."

    assert titles(agent, scripted, cycle_of, answer, prompt_mode="none") == ([], answer)
    assert titles(agent, scripted, cycle_of, answer, prompt_mode="minimal") == ([], answer)
    assert titles(agent, scripted, cycle_of, answer, prompt_mode="task") == (["T"], "Text")
    own = titles(agent, scripted, cycle_of, answer, prompt_mode="none", system_prompt=invite)
    assert own == (["T"], "Text")


def test_a_page_stays_whole(agent, scripted, cycle_of):
    """In a fence, in a line, and as it is."""
    page = "<html><head><title>Shop</title></head></html>"
    answer = f"```html\n{page}\n```\nSee `<title>Shop</title>`.\n\n{page}"

    assert titles(agent, scripted, cycle_of, answer) == ([], answer)


@pytest.mark.parametrize("kept", ["text", "status"])
@pytest.mark.parametrize(
    "answer",
    [
        "<title>secret</title>Well.",
        "<title>the secret plan</title>Well.",
        "<title>a plan, and secret</title>",
        "<title>the secret</title><title>Plan</title>Well.",
        "Well, a secret.\n<title>Plan</title>",
    ],
)
def test_a_filter_that_ends_the_answer_leaves_no_title(agent, scripted, cycle_of, answer, kept):
    """Neither a cut one, nor one behind the end; nor a text behind it."""
    answer = answer.replace("title", "status") if kept == "status" else answer
    guard = cmdc.plugins.OutputFilter(keywords=["secret"], action="abort")
    session = agent(scripted(answer), plugins=[guard])
    with session.subscribe() as stream:
        session.prompt("Hello.")
        found = [envelope.event for envelope in cycle_of(stream)]

    heard = [one for one in found if one.kind in {"title_generated", "status_update"}]
    text = "".join(one.delta for one in found if one.kind == "message_delta")
    assert (heard, text) == ([], "Well, a " if answer.startswith("Well") else "")
    assert found[-1].kind == "agent_abort"
