"""The corpus of ways around the output filter: each ends as the corpus says."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from cmdc_runtime.extensions.actions import Abort
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse
from cmdc_runtime.extensions.provider import FinishChunk, TextChunk, ThinkingChunk
from cmdc_runtime.messages import Message
from workers.builtin.plugins.output_filter import OutputFilter
from workers.output_filters import OutputFilters

END = FinishChunk(reason="stop")
TESTS = Path(__file__).parents[4]
CASES = tomllib.loads((TESTS / "corpora/output_filter.toml").read_text(encoding="utf-8"))["case"]
CONTEXT = PluginContext(session_id="s-1")
KEYS = {"name", "technique", "channel", "keywords", "patterns", "chunks", "outcome", "shown", "why"}


def made(case):
    return OutputFilter(keywords=case.get("keywords", ()), patterns=case.get("patterns", ()))


def shown(plugin, channel, chunks):
    """Return what is shown of an answer, the tags in it first, as the session shows it."""
    filters = OutputFilters([plugin], CONTEXT, lambda *_: None)
    kind = TextChunk if channel == "text" else ThinkingChunk
    parts = [filters.pass_on(chunk) for chunk in [*(kind(text=one) for one in chunks), END]]
    tags = [f"<{one.tag}>{one.text}</{one.tag}>" for part in parts for one in part.found]
    return "".join(tags + [chunk.text for part in parts for chunk in part.chunks if chunk != END])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
def test_a_case_ends_as_it_should(case):
    """As it is cut, in one piece, and letter by letter."""
    plugin, channel = made(case), case.get("channel", "text")
    text = "".join(case["chunks"])
    expected = case.get("shown", text)

    assert shown(plugin, channel, case["chunks"]) == expected
    assert shown(plugin, channel, [text]) == expected
    assert shown(plugin, channel, text) == expected
    if case["outcome"] == "filtered":
        assert expected != text
        [reported] = answer(plugin, channel, expected)
        assert reported.name == "output_filtered"
    else:
        assert answer(plugin, channel, expected) == []


def answer(plugin, channel, text):
    """Return what is said to the complete answer."""
    thinking = text if channel == "thinking" else None
    content = text if channel == "text" else ""
    return plugin.after_response(
        AfterResponse(Message.assistant(content, thinking=thinking)), CONTEXT
    )


def test_what_came_unfiltered_is_found_in_the_complete_answer():
    """A message that did not stream, or that another plugin changed behind the filter."""
    [action] = answer(OutputFilter(keywords=["secret"]), "text", "secret")

    assert isinstance(action, Abort)


def test_the_corpus_is_what_it_claims_to_be():
    """Its cases are distinguished by name, are complete, and are many."""
    outcomes = Counter(case["outcome"] for case in CASES)

    assert len({case["name"] for case in CASES}) == len(CASES)
    assert [case["name"] for case in CASES if not case.keys() <= KEYS] == []
    assert [
        case["name"] for case in CASES if (case["outcome"] == "filtered") != ("shown" in case)
    ] == []
    assert [
        case["name"] for case in CASES if (case["outcome"] == "gets_through") != ("why" in case)
    ] == []
    assert outcomes.keys() == {"filtered", "gets_through", "untouched"}
    assert outcomes["filtered"] >= 75
    assert outcomes["untouched"] >= 20
