"""The reflection: who reviews, what approves, how often, and what the reply becomes."""

import asyncio

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.context import Completion, PluginCallError, PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, BeforeFinish, BeforePrompt
from cmdc_runtime.extensions.plugin import settings_of
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plugins import Reflection as Options
from cmdc_runtime.plugins.thinking import REVIEWER_PROMPT
from workers.builtin.plugins.reflection import (
    HOOK_TIMEOUT_S,
    RESTATE,
    REVIEW_TIMEOUT_S,
    REVIEWED_CHARS_MAX,
    VERDICT_CHARS_MAX,
    Reflection,
    approves,
    corrections,
    instructions,
    reviewed,
)

ASKED = (Message.user("Two and two?"), Message.assistant("5"))
CALL = ToolCall(call_id="c-1", name="look")


class Judge:
    """The session of a plugin, with verdicts in place of a model and a subagent."""

    def __init__(self, *verdicts):
        self.verdicts = list(verdicts)
        self.asked = []

    async def complete(self, prompt, **more):
        """Give the next verdict."""
        self.asked.append((prompt, more))
        return Completion(text=self._next())

    async def delegate(self, description, subagent_type):
        """Give the next verdict."""
        self.asked.append((description, subagent_type))
        return self._next()

    def _next(self):
        verdict = self.verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


def finish(plugin, session=None, messages=ASKED):
    """Return what the plugin says to the end of a cycle."""
    context = PluginContext(
        session_id="s-1",
        messages=messages,
        last_assistant_reply=messages[-1].content,
        session=session,
    )
    return asyncio.run(plugin.before_finish(BeforeFinish(), context))


def reply(plugin, text, *calls):
    """Return what the plugin says to a reply."""
    event = AfterResponse(Message.assistant(text, calls))
    return plugin.after_response(event, PluginContext(session_id="s-1"))


def reported(name, review, mode="self", limit=3, **more):
    """Return an event."""
    return Emit(name, {"review": review, "max_reviews": limit, "mode": mode, **more})


# --- by itself ----------------------------------------------------------------------------------


def test_an_approved_answer_is_given_once_more():
    """So that the reply is the answer, whole, and not the approval; then the cycle may end."""
    plugin = Reflection()

    assert finish(plugin) == [
        reported("reflection_started", 1),
        Intervene(instructions(plugin.config)),
    ]
    assert reply(plugin, "APPROVED") == [reported("reflection_passed", 1), Intervene(RESTATE)]
    assert reply(plugin, "", CALL) == []
    assert reply(plugin, "4") == []
    assert plugin.state.phase == "done"
    assert finish(plugin) == []
    assert finish(plugin) == []


def test_a_corrected_answer_is_reviewed_again():
    """What is no approval is the corrected answer; tools may be called on the way."""
    plugin = Reflection()
    finish(plugin)

    assert reply(plugin, "APPROVED? Let me look.", CALL) == []
    assert reply(plugin, "It is 4.") == [reported("reflection_failed", 1, feedback="It is 4.")]
    assert finish(plugin)[0] == reported("reflection_started", 2)
    assert reply(plugin, "APPROVED")[0] == reported("reflection_passed", 2)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 3),
        ({"max_reviews": 1}, 1),
        ({"max_iterations": 2}, 2),
        ({"max_reviews": 3, "max_iterations": 5}, 3),
    ],
)
def test_an_answer_passes_after_so_many_reviews(options, limit):
    """As it was corrected last; ``max_reviews`` counts before ``max_iterations``."""
    plugin = Reflection(**options)
    for _ in range(limit):
        assert finish(plugin)[0].name == "reflection_started"
        reply(plugin, "It is 6.")

    assert finish(plugin) == [
        reported("reflection_forced", limit, limit=limit, reason="max_reviews")
    ]
    assert finish(plugin) == []
    assert plugin.state.phase == "done"


def test_the_next_prompt_is_reviewed_anew():
    """Whatever became of the cycle before."""
    plugin = Reflection(max_reviews=1)
    finish(plugin)
    reply(plugin, "It is 6.")
    finish(plugin)
    context = PluginContext(session_id="s-1")
    plugin.before_prompt(BeforePrompt("Three and three?"), context)

    assert plugin.state == Reflection.State()
    assert finish(plugin)[0] == reported("reflection_started", 1, limit=1)


def test_replies_before_the_review_are_no_verdicts():
    """The answer itself may have the word in it."""
    plugin = Reflection()

    assert reply(plugin, "APPROVED") == []
    assert plugin.state == Reflection.State()


def test_a_cycle_that_ends_before_the_answer_is_given_once_more_is_done():
    """Nobody reviews what was approved."""
    plugin = Reflection()
    finish(plugin)
    reply(plugin, "APPROVED")

    assert finish(plugin) == []
    assert plugin.state.phase == "done"


# --- by somebody else ---------------------------------------------------------------------------

MODEL = {"reviewer_model": "openai:judge", "reviewer_provider_opts": {"temperature": 0}}
SUBAGENT = {"reviewer_subagent": "critic"}


@pytest.mark.parametrize(("options", "mode"), [(MODEL, "model"), (SUBAGENT, "subagent")])
def test_an_answer_that_somebody_else_approves_is_the_reply(options, mode):
    """Nothing is said to the model, so its answer is the last message."""
    plugin = Reflection(**options)
    judge = Judge("APPROVED")

    assert finish(plugin, judge) == [
        reported("reflection_started", 1, mode),
        reported("reflection_passed", 1, mode),
    ]
    assert finish(plugin, judge) == []
    assert len(judge.asked) == 1


@pytest.mark.parametrize(("options", "mode"), [(MODEL, "model"), (SUBAGENT, "subagent")])
def test_the_model_reads_the_feedback_of_somebody_else(options, mode):
    """It corrects the answer, which is reviewed again, as often as is allowed."""
    plugin = Reflection(max_reviews=2, **options)
    judge = Judge("It is 4.", "Still 4.")

    assert finish(plugin, judge) == [
        reported("reflection_started", 1, mode, 2),
        reported("reflection_failed", 1, mode, 2, feedback="It is 4."),
        Intervene(corrections("It is 4.")),
    ]
    assert reply(plugin, "APPROVED: it is 6.") == []
    assert finish(plugin, judge)[1] == reported(
        "reflection_failed", 2, mode, 2, feedback="Still 4."
    )
    assert finish(plugin, judge) == [
        reported("reflection_forced", 2, mode, 2, reason="max_reviews"),
    ]
    assert "It is 4." in corrections("It is 4.")


def test_a_model_is_asked_apart_from_the_conversation():
    """It reads what to look at, the request and the answer, and has its own options."""
    plugin = Reflection(**MODEL)
    judge = Judge("APPROVED")
    finish(plugin, judge)

    assert judge.asked == [
        (
            "<request>\nTwo and two?\n</request>\n\n<answer>\n5\n</answer>",
            {
                "system": instructions(plugin.config),
                "model": "openai:judge",
                "provider_opts": {"temperature": 0},
            },
        )
    ]


def test_a_subagent_is_given_all_in_its_task():
    """It has no other way to know."""
    plugin = Reflection(**SUBAGENT)
    judge = Judge("APPROVED")
    finish(plugin, judge)
    [(task, subagent_type)] = judge.asked

    assert subagent_type == "critic"
    assert task.startswith(instructions(plugin.config))
    assert task.endswith("<answer>\n5\n</answer>")


@pytest.mark.parametrize(
    ("session", "error"),
    [
        (Judge(PluginCallError("no such model")), "no such model"),
        (None, "there is no session to ask"),
    ],
)
def test_a_review_that_fails_lets_the_answer_pass(session, error):
    """Observers read why, and it is not tried again in this cycle."""
    plugin = Reflection(**MODEL)

    assert finish(plugin, session) == [
        reported("reflection_started", 1, "model"),
        reported("reflection_forced", 1, "model", reason="reviewer_failed", error=error),
    ]
    assert finish(plugin, session) == []


def test_a_review_that_takes_too_long_lets_the_answer_pass():
    """The reviewer has its own bound of time, below that of the hook."""
    plugin = Reflection(**MODEL)
    [_, forced] = finish(plugin, Judge(TimeoutError()))

    assert forced.payload["error"] == "no verdict within 600 s"
    assert REVIEW_TIMEOUT_S < HOOK_TIMEOUT_S == settings_of(plugin, "before_finish").timeout_s


def test_long_texts_are_cut():
    """A reviewer reads what is missing; a verdict is bounded too."""
    long = "x" * (REVIEWED_CHARS_MAX + 1)
    text = reviewed(PluginContext(session_id="s-1", last_assistant_reply=long))
    [_, failed, say] = finish(Reflection(**MODEL), Judge("y" * (VERDICT_CHARS_MAX + 1)))

    assert f"[cut here: {len(long)} characters in all]" in text
    assert text.count("x") == REVIEWED_CHARS_MAX
    assert len(failed.payload["feedback"]) == VERDICT_CHARS_MAX
    assert say == Intervene(corrections("y" * VERDICT_CHARS_MAX))


# --- approval -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "verdict", "found"),
    [
        ("APPROVED", "APPROVED", True),
        ("APPROVED", "approved.", True),
        ("APPROVED", "**APPROVED**", True),
        ("APPROVED", "\n\n# Approved: well done", True),
        ("APPROVED", "APPROVED, because it is right.", True),
        ("APPROVED", "I have read it.\n\nAPPROVED\n\nGood work.", True),
        ("APPROVED", "", False),
        ("APPROVED", "Well done.", False),
        ("APPROVED", "NOT APPROVED", False),
        ("APPROVED", "This cannot be APPROVED yet.", False),
        ("APPROVED", "APPROVEDLY wrong", False),
        ("APPROVED", "y" * VERDICT_CHARS_MAX + "\nAPPROVED", False),
        ("Looks good to me", "looks good to me!", True),
        ("Looks good to me", "It looks good to me", False),
        ("[OK]", "OK", True),
        ("[OK]", "[OK] all of it", True),
        ("---", "---", True),
        ("---", "***", False),
        ("通过", "通过。", True),
        ("通过", "不通过", False),
        ("re:score: *(9|10)/10", "The score: 9/10", True),
        ("re:score: *(9|10)/10", "The score: 8/10", False),
        ("re:(?m)^PASS$", "Well.\nPASS\n", True),
    ],
)
def test_what_approves(signal, verdict, found):
    """A reply that begins with the signal or has it on a line of its own; a pattern anywhere."""
    assert approves(Options(pass_signal=signal, reviewer_prompt="Score it."), verdict) is found


def test_the_reviewer_reads_what_to_do():
    """To look, at what, how to approve, and what to do else, which depends on who reviews."""
    mine = instructions(Options(criteria=("It is short.", "It rhymes."), pass_signal="YES"))
    other = instructions(Options(reviewer_prompt="Is it true?", **SUBAGENT))

    assert mine.startswith(REVIEWER_PROMPT)
    assert "- It is short.\n- It rhymes." in mine
    assert "reply with YES and nothing else" in mine
    assert "give the corrected answer in full" in mine
    assert other.startswith("Is it true?\n\n")
    assert "reply with APPROVED and nothing else" in other
    assert "say only what is wrong" in other
    assert "criteria" not in other


def test_a_pattern_is_not_shown_to_the_reviewer():
    """Its own prompt says how to approve."""
    text = instructions(Options(pass_signal="re:10/10", reviewer_prompt="Score it."))

    assert "re:" not in text
    assert "10/10" not in text
    assert "correct the answer" in text


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_reviews": 0}, "max_reviews"),
        ({"max_iterations": 21}, "max_iterations"),
        ({"reviewer_prompt": ""}, "reviewer_prompt"),
        ({"criteria": [""]}, "criteria"),
        ({"reviewer_subagent": True}, "True names no subagent"),
        ({"reviewer_subagent": ""}, "'' names no subagent"),
        ({"reviewer_subagent": "critic", "reviewer_model": "m"}, "cannot both review"),
        ({"reviewer_provider_opts": {"n": 1}}, "reviewer_model, which is not given"),
        ({"pass_signal": " "}, "has no word"),
        ({"pass_signal": "re:("}, "is no regular expression"),
        ({"pass_signal": "re:ok"}, "give a reviewer_prompt"),
    ],
)
def test_bad_options_are_refused(options, problem):
    """Before the session starts, with the option and the way out."""
    with pytest.raises(InvalidOptions, match=problem):
        Reflection(**options)


def test_options_travel():
    """Whoever reviews."""
    for options in (MODEL, SUBAGENT, {"pass_signal": "re:ok", "reviewer_prompt": "Is it?"}):
        assert pack_plugin(Options(**options), "plugins[0]").data
