"""The oldest messages give way to a summary, calls stay with their results, and it always helps."""

import re
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, ToolCall
from workers.core.compaction import (
    ENTRY_CHARS_MAX,
    MARK_CHARS_MAX,
    SUMMARY_SYSTEM,
    TRANSCRIPT_CHARS_MAX,
    TRIGGER_TOKENS,
    context_tokens,
    cut,
    history_markdown,
    needs_compaction,
    summary_message,
    summary_request,
)
from workers.core.conversation import repair


def said(chars, role="user"):
    return Message(id=f"m-{role}-{chars}", role=role, content="x" * chars)


def asks(*call_ids, **arguments):
    calls = tuple(ToolCall(call_id=one, name="tool", arguments=arguments) for one in call_ids)
    return Message.assistant("", calls)


def result(call_id, chars=1):
    return Message.tool_result(call_id, "x" * chars)


@pytest.mark.parametrize(
    ("messages", "system_chars", "last", "tokens"),
    [
        ([], 0, None, 0),
        ([said(4), said(5)], 8, None, 5),
        ([asks("a", path="p")], 0, None, 4),  # tool{"path":"p"}
        ([Message.assistant("", (ToolCall(call_id="a", name="t", malformed="{xx"),))], 0, None, 1),
        ([Message.assistant("abcd", thinking="y" * 400)], 0, None, 1),
        ([said(4000), said(4000, "assistant"), said(8)], 8, (777, 2), 779),
        ([said(400)], 4000, (777, 1), 777),
        ([said(400)], 40, (777, 2), 110),
    ],
)
def test_the_provider_is_believed_and_the_rest_estimated(messages, system_chars, last, tokens):
    """Characters count where the provider did not, or counted another conversation."""
    assert context_tokens(messages, system_chars, last) == tokens


def test_arguments_that_are_no_json_are_measured_too():
    """A plugin may put anything that travels into a call's arguments."""
    odd = asks("a", raw=b"x", number=float("nan"), nested={1: object()})

    assert context_tokens([odd], 0, None) > 0


@pytest.mark.parametrize(
    ("tokens", "window", "needed"),
    [
        (TRIGGER_TOKENS - 1, None, False),
        (TRIGGER_TOKENS, None, True),
        (TRIGGER_TOKENS, 0, True),
        (84, 100, False),
        (85, 100, True),
        (TRIGGER_TOKENS, 1_000_000, False),
    ],
)
def test_a_known_window_takes_the_place_of_the_fixed_limit(tokens, window, needed):
    """A window of 0 tokens is one that nobody knows."""
    assert needs_compaction(tokens, window) is needed


@pytest.mark.parametrize(
    ("messages", "window", "evicted"),
    [
        pytest.param([said(10)] * 20, None, 14, id="six stay"),
        pytest.param([said(40)] * 20, 1000, 10, id="a tenth of the window stays where it is more"),
        pytest.param([said(40)] * 20, 700, 13, id="a tenth, not yet half of all"),
        pytest.param([said(40)] * 20, 100, 14, id="six stay where they are more than a tenth"),
        pytest.param([said(10)] * 8, None, 4, id="not more than half stays"),
        pytest.param([*[said(1)] * 9, said(100)], None, 9, id="the last message stays"),
        pytest.param([said(10)] * 3, None, 2, id="two at least go"),
        pytest.param([said(10)] * 2, None, 0, id="two messages cannot be one fewer"),
        pytest.param([said(10)], None, 0, id="one message stays"),
        pytest.param([], None, 0, id="nothing is there"),
        pytest.param([said(0)] * 8, None, 2, id="empty messages"),
    ],
)
def test_so_much_goes(messages, window, evicted):
    """What stays is the larger of six messages and a tenth of the window, and at most half."""
    assert cut(messages, window) == evicted


def test_calls_at_the_cut_stay_with_their_results():
    """The cut moves back to the message that called, when that stays within half."""
    batch = [asks("a", "b"), result("a"), result("b")]
    history = [*[said(50)] * 10, *batch, *[said(10)] * 5]

    assert cut(history, None) == 10


def test_the_cut_moves_on_where_the_batch_is_too_large():
    """A batch of more than half of the conversation goes as a whole."""
    batch = [asks("a", "b"), result("a", 500), result("b", 500)]
    history = [*[said(10)] * 4, *batch, *[said(10)] * 5]

    assert cut(history, None) == 7


def test_a_batch_at_the_end_stays_whole():
    """Also when it is most of the conversation, all before it goes and no more."""
    history = [*[said(10)] * 4, asks("a", "b"), result("a", 500), result("b", 500)]

    assert cut(history, None) == 4


def test_calls_that_still_run_stay():
    """What was said since then stays with them; calls lost long ago hold nothing up."""
    lost = [said(10), asks("z"), said(10)]
    running = [asks("a", "b"), result("a", 500), said(500)]

    assert cut([*lost, *running], None) == 3
    assert cut([*lost, asks("y"), said(10), said(0, "assistant"), said(500)], None) == 6


def test_an_id_that_is_used_again_belongs_to_its_latest_call():
    """Some providers begin anew with their ids in every answer."""
    turn = [asks("a"), result("a", 10)]

    assert cut([said(10), *turn * 6], None) == 7
    assert cut([said(10), *turn * 6, said(0)], None) == 7


def test_results_without_a_call_do_not_begin_the_rest():
    """A provider refuses a conversation that begins with a result."""
    history = [*[said(30)] * 3, result("lost"), result("lost"), *[said(10)] * 5]

    assert cut(history, None) == 5


UNITS = st.one_of(
    st.integers(0, 3000).map(lambda chars: [said(chars)]),
    st.tuples(st.integers(1, 4), st.integers(0, 3000), st.integers(0, 2)).map(
        lambda drawn: [
            asks(*[f"c{n}" for n in range(drawn[0])]),
            *[said(1)] * (drawn[2] == 1),
            *[result(f"c{n}", drawn[1]) for n in range(drawn[0] - (drawn[2] == 2))],
        ]
    ),
)
HISTORIES = st.lists(UNITS, max_size=14).map(lambda units: [*chain.from_iterable(units)])
WINDOWS = st.none() | st.integers(1, 20_000)


@settings(derandomize=True, max_examples=300)
@given(HISTORIES, WINDOWS)
def test_a_cut_never_parts_a_call_from_its_results(history, window):
    """Both parts together have the same answered calls as the whole, and the rest a beginning."""
    evicted = cut(history, window)
    gone, kept = history[:evicted], history[evicted:]
    answered = [m.id for m in repair(history) if m in history and m.role == "tool_result"]
    still = [m.id for part in (gone, kept) for m in repair(part) if m in part]

    assert [m_id for m_id in still if m_id in set(answered)] == answered
    assert evicted == 0 or evicted >= 2
    assert not history or kept
    assert evicted == 0 or kept[0].role != "tool_result"


@settings(derandomize=True, max_examples=300)
@given(HISTORIES, WINDOWS)
def test_compacting_again_and_again_comes_to_an_end(history, window):
    """Each round leaves fewer messages, until nothing or one batch is left beside two at most."""
    rounds = 0
    while evicted := cut(history, window):
        summary = summary_message("m-s", "short", evicted, None)
        shorter = [summary, *history[evicted:]]
        assert len(shorter) < len(history)
        history, rounds = shorter, rounds + 1

    assert rounds <= 60


@settings(derandomize=True, max_examples=300)
@given(st.lists(st.integers(0, 3000), min_size=3, max_size=40), WINDOWS)
def test_at_most_half_is_kept(sizes, window):
    """Where no calls stand in the way, half of the characters go, or all but the last message."""
    history = [said(size) for size in sizes]
    evicted = cut(history, window)

    assert 2 * sum(sizes[evicted:]) <= sum(sizes) or evicted == len(sizes) - 1


def test_the_model_is_asked_for_a_summary_of_the_transcript():
    """One message of a user holds all that was said, called and answered."""
    failed = Message.tool_result("a", "no such file", is_error=True)
    asked = Message.user("find the bug")
    [request] = summary_request([asked, asks("a", path="x.py"), failed, said(0, "assistant")])

    assert (request.role, request.id) == ("user", "m-assistant-0-summary")
    assert "[user]\nfind the bug\n\n" in request.content
    assert '[assistant]\ncalls tool with {"path":"x.py"}\n\n' in request.content
    assert "[tool_result, error]\nno such file\n\n" in request.content
    assert request.content.endswith("Summarize the conversation in this transcript.")
    assert (
        request == summary_request([asked, asks("a", path="x.py"), failed, said(0, "assistant")])[0]
    )


def test_an_image_is_named_in_the_summary_and_the_history():
    """Nobody sees it any more; what it was is said."""
    part = MessagePart(media_type="image/png", name="dog.png", digest="0" * 64, size=1_234)
    message = Message(id="m-1", role="user", content="Look.", parts=(part,))
    named = "[image dog.png, image/png, 1,234 bytes]"
    (asked,) = summary_request([message])

    assert f"[user]\nLook.\n{named}" in asked.content
    assert named in history_markdown([message], "s-1")


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"media_type": "image/png", "size": 10_000_000}, 1_500),
        ({"media_type": "image/*", "url": "https://example.org"}, 1_500),
        ({"media_type": "application/pdf", "size": 10}, 2_000),
        ({"media_type": "application/pdf", "size": 500_000}, 20_000),
        ({"media_type": "application/pdf", "size": 16_000_000}, 200_000),
        ({"media_type": "application/pdf", "url": "https://example.org"}, 10_000),
        ({"media_type": "text/plain", "size": 400}, 100),
    ],
)
def test_images_and_files_are_estimated_by_what_they_are(fields, tokens):
    """Not by their bytes, but for texts."""
    message = Message(role="user", content="", parts=(MessagePart(**fields),))

    assert context_tokens([message], 0, None) == tokens


def test_an_earlier_summary_is_distinguished():
    """The next summary takes over what still holds, and knows where it stands."""
    [request] = summary_request([summary_message("m-1", "old facts", 9, None), said(3)])

    assert "[earlier summary]\n" in request.content
    assert "old facts" in request.content
    assert "earlier summary" in SUMMARY_SYSTEM


@pytest.mark.parametrize("kept", ["decisions", "facts", "names", "paths", "open tasks", "wants"])
def test_the_model_reads_what_to_keep(kept):
    """What is not in the summary is forgotten."""
    assert kept in SUMMARY_SYSTEM


def test_one_long_message_leaves_room_for_the_others():
    """The middle of a long message is left out, and how much that is."""
    [request] = summary_request([said(1), said(ENTRY_CHARS_MAX * 3, "assistant"), said(2)])

    assert len(request.content) < ENTRY_CHARS_MAX + 500
    assert re.search(r"\[… 4\d{4} characters left out …\]", request.content)
    assert "[user]\nxx\n" in request.content


@pytest.mark.parametrize(
    ("window", "chars_max"),
    [
        (None, TRANSCRIPT_CHARS_MAX),
        (1_000_000, TRANSCRIPT_CHARS_MAX),
        (8000, 16_000),
        (1, MARK_CHARS_MAX),
    ],
)
def test_a_transcript_is_bounded(window, chars_max):
    """The request for a summary fits into the window: the middle is left out, and said."""
    history = [said(1), *[said(10_000)] * 100, said(2)]
    [request] = summary_request(history, window)

    assert chars_max - 100 < len(request.content) < chars_max + 200
    assert "characters left out" in request.content


def test_a_summary_stands_for_what_is_gone():
    """The model learns that it reads a summary and where to find the rest."""
    summary = summary_message("m-9", " the facts\n", 24, "/history/s-1.md")

    assert (summary.id, summary.role) == ("m-9", "user")
    assert summary.metadata == {"compacted": 24, "history_file": "/history/s-1.md"}
    assert "summary of the earlier conversation; 24 messages" in summary.content
    assert "`/history/s-1.md`" in summary.content
    assert summary.content.endswith("<summary>\nthe facts\n</summary>")


def test_a_summary_names_no_file_that_is_not_there():
    """A model that is sent to a file looks for it."""
    summary = summary_message("m-9", "the facts", 24, None)

    assert summary.metadata == {"compacted": 24}
    assert "file" not in summary.content


def test_the_history_file_has_everything():
    """Each message has a heading with its id; no text ends its code block early."""
    call = ToolCall(call_id="c-1", name="read", arguments={"path": "x"})
    broken = ToolCall(call_id="c-2", name="read", malformed="{no")
    history = [
        Message(id="m-1", role="user", content="look"),
        Message(id="m-2", role="assistant", thinking="hm", tool_calls=(call, broken)),
        Message(id="m-3", role="tool_result", call_id="c-1", content="a ```` b"),
        Message(id="m-4", role="tool_result", call_id="c-2", content="bad", is_error=True),
    ]

    assert history_markdown(history, "s-1") == (
        "# Session s-1, 4 messages\n"
        "\n## m-1: user\n"
        "\nlook\n"
        "\n## m-2: assistant\n"
        "\nThinking:\n\n```\nhm\n```\n"
        '\nCalls `read` (c-1):\n\n```\n{"path":"x"}\n```\n'
        "\nCalls `read` (c-2):\n\n```\n{no\n```\n"
        "\n## m-3: tool_result of c-1\n"
        "\n`````\na ```` b\n`````\n"
        "\n## m-4: tool_result of c-2, error\n"
        "\n```\nbad\n```\n"
    )


def test_a_fence_is_longer_than_the_longest_in_the_text():
    """Whatever else the text has of them."""
    text = "a ` b ```` c `` d"
    answer = Message.tool_result("c-1", text)

    assert f"\n`````\n{text}\n`````\n" in history_markdown([answer], "s")
