"""The reasoning: what each strategy asks when, which thoughts are published, and how it ends."""

from typing import get_args

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import PluginEvent, ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import TEXT_CHARS_MAX
from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, AfterTurn, BeforeFinish, BeforePrompt
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plugins import Reasoning as Options
from cmdc_runtime.reasoning import ReasoningResult
from cmdc_runtime.reasoning.strategies import PHASES, Chain
from workers.builtin.plugins.reasoning import Reasoning

CALL = ToolCall(call_id="c-1", name="look")


class Cycle:
    """A cycle of a session with a plugin."""

    def __init__(self, **options):
        self.plugin = Reasoning(**options)
        self.messages = []
        self.usage = TokenUsage()

    def context(self):
        """Return what the plugin sees."""
        said = [message.content for message in self.messages if message.role == "assistant"]
        return PluginContext(
            session_id="s-1",
            messages=tuple(self.messages),
            last_assistant_reply=said[-1] if said else None,
            usage=self.usage,
        )

    def prompt(self, text="Why?"):
        """Give a prompt, and return what the plugin says."""
        self.messages.append(Message.user(text))
        return self.plugin.before_prompt(BeforePrompt(text), self.context())

    def reply(self, text, *calls):
        """Have the model say something, and return what the plugin says."""
        message = Message.assistant(text, calls)
        self.messages.append(message)
        return self.plugin.after_response(AfterResponse(message), self.context())

    def finish(self):
        """Return what the plugin says to the end of the cycle."""
        return self.plugin.before_finish(BeforeFinish(), self.context())

    def over(self, outcome="finished"):
        """End the cycle, and return what the plugin says."""
        reason = None if outcome == "finished" else "why not"
        event = AfterTurn(outcome, reason, (), TokenUsage(), 1, 2, 1)
        return self.plugin.after_turn(event, self.context())


def thought(text, index, strategy="chain_of_thought", run=1):
    """Return the event of one thought."""
    published = ReasoningThought(
        run_id=f"s-1.{run}",
        strategy=strategy,
        thought_id=f"t{index + 1}",
        parent_id=f"t{index}" if index else None,
        content=text,
    )
    return Emit(published)


def done(answer, strategy="chain_of_thought", status="done"):
    """Return the event of the end."""
    return Emit(ReasoningDone(run_id="s-1.1", strategy=strategy, status=status, answer=answer))


def test_every_strategy_has_phases():
    """The table has a row for each name, and texts that are distinguished."""
    texts = [text for phases in PHASES.values() for text in phases]

    assert set(PHASES) == set(get_args(Chain))
    assert all(texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("strategy", ["chain_of_thought", "plan_and_solve"])
def test_strategy_of_one_phase(strategy):
    """It is asked for with the prompt, and the first answer is the last."""
    cycle = Cycle(strategy=strategy)

    assert cycle.prompt() == Intervene(PHASES[strategy][0])
    assert cycle.reply("First. So: 4.") == thought("First. So: 4.", 0, strategy)
    assert cycle.finish() == done("First. So: 4.", strategy)


def test_step_back_asks_twice():
    """The general question is answered first, and the request with it."""
    back, forward = PHASES["step_back"]
    cycle = Cycle(strategy="step_back")

    assert cycle.prompt() == Intervene(back)
    assert cycle.reply("In general …") == thought("In general …", 0, "step_back")
    assert cycle.finish() == Intervene(forward)
    assert cycle.reply("So here 4.") == thought("So here 4.", 1, "step_back")
    assert cycle.finish() == done("So here 4.", "step_back")


def test_words_between_calls_are_thoughts_too():
    """Calls without words are none."""
    cycle = Cycle()
    cycle.prompt()

    assert cycle.reply(" Let me look. ", CALL) == thought("Let me look.", 0)
    assert cycle.reply(" ", CALL) is None
    assert cycle.reply("4") == thought("4", 1)
    assert cycle.finish() == done("4")


def test_the_end_is_reported_once():
    """Whatever other plugins have the model do after it, and when the cycle is over."""
    cycle = Cycle()
    cycle.prompt()
    cycle.reply("4")

    assert cycle.finish() is not None
    assert cycle.reply("4, corrected") is None
    assert cycle.finish() is None
    assert cycle.over() is None


@pytest.mark.parametrize(("outcome", "status"), [("aborted", "aborted"), ("finished", "done")])
def test_a_cycle_that_ends_early_is_reported(outcome, status):
    """One that is aborted has no answer; one that rests for a person has what was said last."""
    cycle = Cycle(strategy="step_back")
    cycle.prompt()
    cycle.reply("In general …")
    answer = None if outcome == "aborted" else "In general …"

    assert cycle.over(outcome) == done(answer, "step_back", status)
    assert cycle.over(outcome) is None


def test_a_message_that_is_heard_twice_is_one_thought():
    """After a crash a hook may be heard again."""
    cycle = Cycle()
    cycle.prompt()
    cycle.reply("4")
    again = AfterResponse(cycle.messages[-1])

    assert cycle.plugin.after_response(again, cycle.context()) is None


def test_what_is_published_is_a_run():
    """The fields are those of a strategy's run, so its result can be made of the stream."""
    cycle = Cycle(strategy="step_back")
    cycle.prompt()
    emits = [cycle.reply("In general …")]
    cycle.finish()
    emits += [cycle.reply("So here 4."), cycle.finish()]
    sealed = [event for emit in emits for event in emit.sealed().events()]
    result = ReasoningResult.of(
        PluginEvent(name=name, payload=published) for name, published in sealed
    )

    assert (result.status, result.answer, result.strategy) == ("done", "So here 4.", "step_back")
    assert [(one.id, one.parent_id) for one in result.thoughts] == [("t1", None), ("t2", "t1")]


def test_each_prompt_begins_anew():
    """Numbers and phases are those of the cycle."""
    cycle = Cycle(strategy="step_back")
    cycle.prompt()
    cycle.reply("In general …")

    assert cycle.prompt("And?") == Intervene(PHASES["step_back"][0])
    assert cycle.reply("Again …") == thought("Again …", 0, "step_back", run=2)


@pytest.mark.parametrize(
    ("text", "is_asked"), [("x" * 9, False), ("x" * 10, True), (f" {'x' * 9} ", False)]
)
def test_short_prompts_are_answered_as_ever(text, is_asked):
    """Nothing is said and nothing published."""
    cycle = Cycle(min_prompt_length=10)

    assert (cycle.prompt(text) is not None) is is_asked
    assert (cycle.reply("4") is not None) is is_asked
    assert (cycle.finish() is not None) is is_asked


def test_long_texts_are_cut():
    """What is published fits into an event, however much the model says."""
    cycle = Cycle()
    cycle.prompt()
    published = [cycle.reply("x" * (TEXT_CHARS_MAX + 1), CALL) for _ in range(3)]
    end = cycle.finish().name

    assert {len(event.name.content) for event in published} == {TEXT_CHARS_MAX}
    assert len(end.answer) == TEXT_CHARS_MAX


def test_templates_take_the_place_of_our_words():
    """One for each phase."""
    cycle = Cycle(strategy="step_back", templates=["Back!", "Forth!"])

    assert cycle.prompt() == Intervene("Back!")
    cycle.reply("Well")
    assert cycle.finish() == Intervene("Forth!")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"strategy": "tree_of_thoughts"}, "strategy"),
        ({"min_prompt_length": -1}, "min_prompt_length"),
        ({"templates": ["a", "b"]}, "2 given, but 'chain_of_thought' has 1"),
        ({"strategy": "step_back", "templates": ["a"]}, "1 given, but 'step_back' has 2"),
        ({"templates": []}, "0 given"),
        ({"templates": [""]}, "templates"),
    ],
)
def test_bad_options_are_refused(options, problem):
    """Before the session starts, with the option and the way out."""
    with pytest.raises(InvalidOptions, match=problem):
        Reasoning(**options)


def test_an_unknown_strategy_is_refused_when_it_is_packed():
    """With or without templates for it."""
    for more in ({}, {"templates": ("a",)}):
        with pytest.raises(InvalidOptions, match="tree"):
            pack_plugin(Options(strategy="tree", **more), "plugins[0]")


def used(tokens):
    """Return what a request took."""
    return TokenUsage(total_tokens=tokens, prompt_tokens=tokens, cost_usd=tokens / 8)


def test_each_thought_has_the_usage_of_the_turns_that_it_came_of():
    """Those that came to calls alone are its, and what the session had used before is nobody's."""
    cycle = Cycle(strategy="step_back")
    cycle.usage = used(1_000)
    cycle.prompt()
    emits = []
    for text, tokens in (("In general …", 20), ("", 300), ("So here 4.", 4)):
        cycle.usage += used(tokens)
        emits.append(cycle.reply(text, *([] if text else [CALL])))
    cycle.finish()
    emits.append(cycle.finish())
    published = [event for emit in emits if emit for event in emit.sealed().events()]
    result = ReasoningResult.of(PluginEvent(name=name, payload=one) for name, one in published)

    assert result.status == "done"
    assert [one.usage for one in result.nodes] == [used(20), used(304)]
    assert result.usage == used(324)


def test_the_usage_of_a_cycle_is_not_that_of_the_one_before():
    """What comes after its end is nobody's."""
    cycle = Cycle()
    cycle.prompt()
    cycle.usage += used(1)
    cycle.reply("4")
    cycle.finish()
    cycle.usage += used(20)
    cycle.prompt("And?")
    cycle.usage += used(300)

    assert cycle.reply("5").name.usage == used(300)
