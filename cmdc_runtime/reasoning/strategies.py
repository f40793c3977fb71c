"""The options of the built-in strategies, what each asks of a model, and the words of judges.

In a chain one thought leads to the next. The Reasoning plugin asks the same within one session. To
add a chain: its name in ``Chain``, its phases in ``PHASES``, a class here, and a strategy in
``workers.builtin.reasoning``. The operations of a graph of thoughts form a graph without cycles.
What judges are asked, and the types of their answers, are common to all; the words are ours.
"""

import importlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from cmdc_runtime.checked_struct import Checked, Share
from cmdc_runtime.packing import FUNCTION_KEY, BuiltInStrategy, Function
from cmdc_runtime.plain import short
from cmdc_runtime.provider_options import check_models, model_problem
from cmdc_runtime.reasons import snake

# --- chains ---------------------------------------------------------------------------------------

Chain: TypeAlias = Literal["chain_of_thought", "plan_and_solve", "step_back"]

_CHAIN_OF_THOUGHT: Final = """\
Work this out step by step before you answer. Write each step down with what it rests on and what \
follows from it, and look at it once more before you go on. Then give your answer, clearly set \
apart from the steps."""
_PLAN_AND_SOLVE: Final = """\
Before you answer, make sure that you have understood what is asked. Write down what is known and \
what is wanted, with every quantity that matters. Make a plan that leads from one to the other, \
then carry it out step by step; check each calculation and each intermediate result before you use \
it. End with your answer, clearly set apart."""
_STEP_BACK: Final = """\
Do not answer this yet. Take a step back: which more general question lies behind it, about the \
principles, concepts or facts that it is a case of? State that question, and answer it."""
_STEP_FORWARD: Final = """\
Now return to the request itself. Reason from what you have just laid out to the case at hand, and \
give your answer in full, so that it can be understood by somebody who reads nothing else."""

PHASES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "chain_of_thought": (_CHAIN_OF_THOUGHT,),
        "plan_and_solve": (_PLAN_AND_SOLVE,),
        "step_back": (_STEP_BACK, _STEP_FORWARD),
    }
)
"""What the model reads in each phase of a chain: after the prompt, then after each answer.

The ideas are those of Wei et al. 2022 and Kojima et al. 2022 (chain of thought, without examples),
Wang et al. 2023 (plan and solve) and Zheng et al. 2023 (step back); the words are ours.
"""

OWN: Final = "own"
"""What the plugin ``Reasoning`` calls a chain that is none of ours."""
CHAIN_PLUGIN: Final = "reasoning"
"""The plugin that has a session reason by a chain."""
LABEL_CHARS_MAX: Final = 64
"""Of the name of somebody's own chain."""
_PAIR: Final = 2
PromptText = Annotated[str, Meta(min_length=1, max_length=100_000)]
"""A text of a prompt."""


class ChainStrategy(BuiltInStrategy, frozen=True, kw_only=True):
    """Base of the chains, and of your own: a subclass whose ``templates`` have its texts.

    As ``reasoning_strategy`` a chain runs inside the session, as the plugin ``Reasoning`` does it.
    """

    short_name: ClassVar[str] = "chain"
    chain: ClassVar[str] = ""
    """Which of ours it is; empty for your own."""
    templates: tuple[PromptText, ...] | None = None
    """What the model reads, one text for each phase; None: our words."""

    def __post_init__(self) -> None:
        """Refuse templates that are not as many as the chain has phases, or not there."""
        check_templates(self.chain, self.templates)

    @property
    def phases(self) -> tuple[str, ...]:
        """What the model reads in each phase."""
        return self.templates or PHASES[self.chain]

    def to_options(self) -> dict[str, Any]:  # Any: as its base has it
        """Return the options as they travel: those of your own chain are its texts."""
        return super().to_options() if self.chain else {"templates": list(self.phases)}


class ChainOfThought(ChainStrategy, frozen=True, kw_only=True):
    """One branch that reasons step by step.

    Wei et al. 2022, in Kojima et al.'s form without examples (2022). We differ: Kojima et al. ask a
    second time, with the reasoning above "Therefore, the answer is", to have the answer alone; here
    the answer is all of the branch's text, and a strategy that compares answers reads it from the
    end (``search.final_answer``). The words of the prompt are ours, and not "Let's think step by
    step".
    """

    short_name: ClassVar[str] = "chain_of_thought"
    chain: ClassVar[str] = "chain_of_thought"


class PlanAndSolve(ChainStrategy, frozen=True, kw_only=True):
    """One branch that makes a plan first, and carries it out.

    Wang et al. 2023, "plan-and-solve plus": with the quantities written down and the calculation
    checked. We differ as ``ChainOfThought`` does: the words are ours, no second prompt extracts the
    answer, which is all of its text.
    """

    short_name: ClassVar[str] = "plan_and_solve"
    chain: ClassVar[str] = "plan_and_solve"


class StepBack(ChainStrategy, frozen=True, kw_only=True):
    """A branch for the more general question, then one that answers the request with it.

    Zheng et al. 2023. We differ: there the first answer is looked up in documents where there are
    some, here the model knows it, or has tools; and the prompts are ours, without the paper's
    examples.
    """

    short_name: ClassVar[str] = "step_back"
    chain: ClassVar[str] = "step_back"


def check_templates(chain: str, templates: tuple[str, ...] | None) -> None:
    """Refuse templates that are not as many as the chain has phases; another one needs some.

    Raises:
        ValueError: it says how many there should be.
    """
    phases = PHASES.get(chain)
    if chain in {"", OWN} and not templates:
        raise ValueError("templates: give the texts of your own chain, one for each phase")
    if templates is None or phases is None:  # an unknown chain is refused by its type
        return
    if len(templates) != len(phases):
        raise ValueError(
            f"templates: {len(templates)} given, but {chain!r} has {len(phases)}"
            " phases: give one text for each, in their order"
        )


def chain_of(given: object) -> ChainStrategy | None:
    """Return the chain that a session's strategy is, None where its branches are sessions.

    ``"module:Class"`` is looked up where it can be imported here.

    Raises:
        InvalidOptions: its options are wrong.
    """
    options: Mapping[str, Any] = {}  # Any: options as they come
    if isinstance(given, tuple) and len(given) == _PAIR and isinstance(given[1], Mapping):
        given, options = given
    if isinstance(given, str):
        given = _CHAINS.get(given) or _imported(given)
    if isinstance(given, ChainStrategy):
        return None if options else given
    if isinstance(given, type) and issubclass(given, ChainStrategy):
        return given(**options)
    return None


def _imported(reference: str) -> object:
    module, _, name = reference.partition(":")
    if not name:
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except Exception:  # noqa: BLE001 - it may be there where the daemon runs, which says what is wrong
        return None


_CHAINS: Final = {one.short_name: one for one in (ChainOfThought, PlanAndSolve, StepBack)}


# --- judging --------------------------------------------------------------------------------------

_PROVIDERS: Final = frozenset(
    {
        *("anthropic", "azure", "bedrock", "cohere", "deepseek", "gemini", "google", "groq"),
        *("mistral", "ollama", "openai", "openrouter", "together_ai", "vertex_ai", "xai"),
    }
)
"""Before a colon these are of a model, though a module may have the name."""
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
VALUE_MAX: Final = 10
"""The best that a judge can say of one thought."""


class Judgement(msgspec.Struct, frozen=True):
    """A judge's answer about one thought."""

    score: Annotated[int, Meta(ge=1, le=VALUE_MAX)]
    """10: surely right; 1: of no use."""
    why: str = ""


class Choice(msgspec.Struct, frozen=True):
    """A judge's answer about several thoughts."""

    best: Annotated[int, Meta(ge=1)]
    """The number of the best one."""
    why: str = ""


class Proposals(msgspec.Struct, frozen=True):
    """Several texts in one answer."""

    items: Annotated[list[str], Meta(min_length=1, max_length=100)]


VALUE: Final = """\
You judge how promising a partial solution is. Do not solve the task yourself beyond what you \
need for that. Check each step for mistakes, and look ahead: can it still lead to a correct and \
complete answer? Give a score from 1 (it cannot, or has a mistake) to 10 (it is a correct answer, \
or surely leads to one), and one sentence why."""
"""For a judge of one thought."""
WEIGH: Final = """\
You judge how sure a solution is. Check each of its steps for mistakes, and its answer against the \
task. Give a score from 1 (it is surely wrong) to 10 (it is surely right), and one sentence why."""
"""For a judge of one sample."""
VOTE: Final = """\
You compare candidates for the next step of a solution. Weigh each against the task: what is \
right, what is wrong, and how well it can be built upon. Then give the number of the best one, \
and one sentence why."""
"""For a judge of several thoughts."""


def check_function(option: str, given: object, what: str) -> None:
    """Refuse what is no function and names none; ``what`` says of what it is a function.

    Raises:
        ValueError: it says what the option takes.
    """
    travels = isinstance(given, Mapping) and FUNCTION_KEY in given
    is_named = isinstance(given, str) and _FUNCTION.fullmatch(given) is not None
    if not (given is None or callable(given) or travels or is_named):
        raise ValueError(
            f"{option}: expected a function of {what}, or its 'module:name', got {short(given)}"
        )


def check_scorers(score: object, judge: object) -> None:
    """Refuse a ``score`` that is no function, both at once, and a judge that names no model.

    Raises:
        ValueError: it says which option takes what.
    """
    if isinstance(score, str) and _names_model(score):
        raise ValueError(
            f"score: {score!r} names a model, and a score is a function of a text and the question,"
            f" or its 'module:name': give a model that judges as judge={score!r}"
        )
    try:
        check_function("score", score, "a text and the question")
    except ValueError as error:
        raise ValueError(f"{error}; a model that judges is given as judge='…'") from None
    if score is not None and judge is not None:
        raise ValueError("judge: a score takes the place of judges: give one of them")
    check_models(judge=judge)


def _names_model(text: str) -> bool:
    is_model = model_problem(text) is None and _FUNCTION.fullmatch(text) is None
    return is_model or text.partition(":")[0] in _PROVIDERS


# --- tree of thoughts -----------------------------------------------------------------------------

STEP: Final = """\
This is worked out in {depth} steps, and you take step {step}. Build on what is there so far. \
Write this one step alone, short and complete, and go no further."""
"""Asks for one next step."""
LAST: Final = """\
This is worked out in {depth} steps, and you take the last one. Build on what is there so far, and \
write the complete answer."""
"""Asks for the last step."""
PROPOSE: Final = """\
This is worked out in {depth} steps, and the next one is step {step}. Propose up to {candidates} \
different ways to take this one step, each short, complete and in itself, without going further."""
"""Asks for several next steps in one answer."""


class TreeOfThoughts(BuiltInStrategy, frozen=True, kw_only=True):
    """Searches a tree of partial solutions: candidates for each step, scored, the best pursued.

    Yao et al. 2023, "Tree of Thoughts". The defaults are those of its creative writing: two steps,
    five samples each, five votes, the best one kept. Its Game of 24 is ``depth=3, breadth=5,
    generate="propose", scoring="value", votes=3``, its crosswords ``search="dfs"`` with 100 steps
    (``max_steps``).

    We differ: a value is 1 to 10 and the judges' mean counts, where the paper's Game of 24 maps
    sure, likely and impossible to 20, 1 and 0.001 and adds them up. Depth-first search ends with
    the first complete path, and begins at each node with its best candidate. "beam" is ours, and so
    are the words of all prompts, which have no examples. Where a level has no candidate, or no
    judge answers, the run has failed, with the best of the level before.

    Candidates that are sampled, and votes, have to differ. The paper takes a temperature of 0.7;
    here they have the session's, as with ``SelfConsistency``: at 0 all samples are alike, so that
    ``generate="propose"`` is the way to have several.
    """

    short_name: ClassVar[str] = "tree_of_thoughts"
    search: Literal["bfs", "dfs", "beam"] = "bfs"
    """How: "bfs" keeps the ``breadth`` best candidates of a level; "beam" does so by the sum of the
    scores on the path; "dfs" follows the best candidate, and goes back where all are below
    ``threshold``."""
    depth: Annotated[int, Meta(ge=1, le=50)] = 2
    """Steps from the question to the answer."""
    breadth: Annotated[int, Meta(ge=1, le=50)] = 1
    """Thoughts that are kept at each level; not for "dfs"."""
    candidates: Annotated[int, Meta(ge=1, le=50)] = 5
    """For each thought that is pursued."""
    generate: Literal["sample", "propose"] = "sample"
    """Whether each candidate is a branch of its own, or one branch proposes all of them."""
    scoring: Literal["value", "vote"] = "vote"
    """Whether judges score each candidate by itself, or each chooses the best of a level."""
    votes: Annotated[int, Meta(ge=1, le=50)] = 5
    """Judges: of each candidate, or of each level."""
    score: Function | None = None
    """In place of judges: a function of the path's text and the question to a number, the greater
    the better, or its "module:name". It may return None for no score, and (number, details)."""
    judge: PromptText | None = None
    """The model that judges, "provider:model_id"; None: the session's own."""
    threshold: float = 0.5
    """For "dfs": a candidate that is scored below is given up. Judges score from 0 to 1."""
    step_prompt: PromptText = STEP
    """Takes the place of our words; it may have {step}, {depth} and {candidates}."""
    last_prompt: PromptText = LAST
    propose_prompt: PromptText = PROPOSE
    value_prompt: PromptText = VALUE
    vote_prompt: PromptText = VOTE

    def __post_init__(self) -> None:
        """Refuse scorers that are none."""
        check_scorers(self.score, self.judge)


# --- graph of thoughts ----------------------------------------------------------------------------

OPERATIONS_MAX: Final = 200
SPLIT: Final = """\
Do not solve this yet. Split it into {parts} parts that can be worked on independently, each so \
that somebody who reads it alone knows what to do."""
GENERATE: Final = "Work this out step by step, and write the complete result."
AGGREGATE: Final = (
    "Combine the results below into one complete result that has what is best in each."
)
REFINE: Final = """\
Below is a result so far. Check it against the task, correct every mistake, and write the complete \
result again."""

Many = Annotated[int, Meta(ge=1, le=100)]
OperationPlace = Annotated[int, Meta(ge=0, lt=OPERATIONS_MAX)]


class Operation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="op",
    tag=snake,
    metaclass=Checked,
):
    """Base of all operations: each makes thoughts of the thoughts of others."""

    inputs: tuple[OperationPlace, ...] | None = None
    """The places of the operations that it builds on, all before it; None: the one before it, of
    the first one the question."""


class Split(Operation, frozen=True, kw_only=True):
    """One branch splits the task into parts, which are thoughts of their own."""

    parts: Many = 2
    prompt: PromptText = SPLIT
    """It may have {parts}."""


class Select(Operation, frozen=True, kw_only=True):
    """Takes one of the thoughts, by its place among them."""

    part: Annotated[int, Meta(ge=0, le=99)] = 0


class Generate(Operation, frozen=True, kw_only=True):
    """``k`` branches for each thought, which answer the question, or the part that it is."""

    k: Many = 1
    prompt: PromptText = GENERATE


class Aggregate(Operation, frozen=True, kw_only=True):
    """``k`` branches that make one thought of all."""

    k: Many = 1
    prompt: PromptText = AGGREGATE


class Refine(Operation, frozen=True, kw_only=True):
    """``k`` branches for each thought, which make it better; it stays among the results."""

    k: Many = 1
    prompt: PromptText = REFINE


class Score(Operation, frozen=True, kw_only=True):
    """Scores each thought: by the graph's ``score``, or by the mean of ``votes`` judges."""

    votes: Many = 1
    prompt: PromptText = VALUE


class KeepBest(Operation, frozen=True, kw_only=True):
    """Keeps the ``n`` best thoughts, and prunes the others."""

    n: Many = 1


AnyOperation: TypeAlias = Split | Select | Generate | Aggregate | Refine | Score | KeepBest
_DEFAULT: Final[tuple[AnyOperation, ...]] = (
    Generate(k=3),
    Score(),
    KeepBest(n=2),
    Aggregate(),
    Refine(),
    Score(),
    KeepBest(),
)


class GraphOfThoughts(BuiltInStrategy, frozen=True, kw_only=True):
    """Thoughts that are generated, split, merged, refined, scored and kept, as a graph says.

    Besta et al. 2023, "Graph of Thoughts": a graph of operations, carried out in its order. The
    answer is the best thought of the last operation. The paper has no default graph; ours is three
    results, the two best merged, and that refined. The volume of a thought is, in the paper, the
    number of thoughts from which there is a way to it: of that answer it is 3, the two that were
    kept and the merged one. We differ: what can run at the same time does; a thought that is
    refined stays a candidate beside what came of it, where the paper draws refining as an edge of a
    thought to itself; the words of the prompts are ours. ``k`` results of one prompt differ by the
    session's temperature alone, as with ``SelfConsistency``; the paper's is 1.
    """

    short_name: ClassVar[str] = "graph_of_thoughts"
    operations: Annotated[
        tuple[AnyOperation, ...], Meta(min_length=1, max_length=OPERATIONS_MAX)
    ] = _DEFAULT
    score: Function | None = None
    """In place of judges: a function of a thought's text and the question to a number, the greater
    the better, or its "module:name". It may return None for no score, and (number, details)."""
    judge: PromptText | None = None
    """The model of judges, "provider:model_id"; None: the session's own."""

    def __post_init__(self) -> None:
        """Refuse a graph that has a cycle, and scorers that are none."""
        check_scorers(self.score, self.judge)
        for place, operation in enumerate(self.operations):
            wrong = [one for one in operation.inputs or () if one >= place]
            if wrong:
                raise ValueError(
                    f"operations[{place}] builds on operations[{wrong[0]}], which is not before it"
                )

    def inputs_of(self, place: int) -> tuple[int, ...]:
        """Return the places of what an operation builds on; none: the question."""
        given = self.operations[place].inputs
        if given is not None:
            return given
        return (place - 1,) if place else ()


# --- self-consistency -----------------------------------------------------------------------------

SAMPLE: Final = """\
Work this out step by step, and check each step. End with one line of the form

Answer: <your answer, as short as it can be>"""
"""Asks for one sample."""


class SelfConsistency(BuiltInStrategy, frozen=True, kw_only=True):
    """Has the question answered several times, and takes the answer that most of them give.

    Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning": a majority vote over
    the answers of independent chains. We differ: 10 samples, where the paper draws 40 and finds
    most of the gain with 5 to 10; it ends as soon as the rest cannot change the majority; and the
    prompt is ours, without the paper's examples.

    Samples have to differ. The paper draws them at a temperature of 0.5 or 0.7; here they have the
    session's, which at 0 makes them all alike, and the vote one of a single sample:
    ``provider_opts={"temperature": 0.7}``, of the session or, for branches alone, of its
    ``SubAgent("general-purpose", …)``, sets it.
    """

    short_name: ClassVar[str] = "self_consistency"
    samples: Annotated[int, Meta(ge=1, le=200)] = 10
    score: Function | None = None
    """A function of a sample's text and the question to a number from 0: a vote weighs as much,
    that of a sample with None nothing; (number, details) says why. All samples are waited for."""
    judge: PromptText | None = None
    """A model, "provider:model_id", that weighs each sample from 0 to 1, in place of ``score``."""
    judge_prompt: PromptText = WEIGH
    answer: Function | None = None
    """A function of a sample's text to its answer; None: what stands behind the last "answer", else
    its last line. Answers are compared by ``cmdc.reasoning.search.normalise``."""
    prompt: PromptText = SAMPLE
    """Asks for one sample, below the question."""

    def __post_init__(self) -> None:
        """Refuse scorers, and what reads answers, that are none."""
        check_function("answer", self.answer, "a text")
        check_scorers(self.score, self.judge)


# --- self-refinement ------------------------------------------------------------------------------

STOP: Final = "NOTHING TO IMPROVE"
"""What feedback says that finds nothing."""
DRAFT: Final = "Answer this in full."
"""Asks for the draft."""
FEEDBACK: Final = """\
Review the answer below. Name each concrete weakness with the place where it is and what would be \
better: mistakes of fact or reasoning, what is missing, what is unclear. Do not rewrite it. \
If there is nothing worth changing, write only: {stop}"""
"""Asks for feedback."""
REFINE_ANSWER: Final = """\
You have answered this before, and have feedback on it. Write the answer again, in full, \
with every point of the feedback dealt with; what was good stays as it is."""
"""Asks for a better answer."""


class SelfRefine(BuiltInStrategy, frozen=True, kw_only=True):
    """A draft, feedback on it, a better draft, until the feedback finds nothing or the limit.

    Madaan et al. 2023, "Self-Refine": one model in three roles, which sees all earlier drafts and
    feedback. We differ: up to 3 refinements, as many as a run may have unless it says otherwise,
    where the paper has up to 4; feedback is text without scores; and the words of the prompts are
    ours, the same for every task and without examples, where the paper has some for each. The
    paper's temperature is 0.7, here it is the session's.
    """

    short_name: ClassVar[str] = "self_refine"
    revisions: Annotated[int, Meta(ge=0, le=50)] = 3
    """At most; the run's ``max_revisions`` bounds them too."""
    stop: Annotated[str, Meta(min_length=1, max_length=200)] = STOP
    """Feedback that has it, in whatever case, ends the loop."""
    draft_prompt: PromptText = DRAFT
    feedback_prompt: PromptText = FEEDBACK
    """It may have {stop}."""
    refine_prompt: PromptText = REFINE_ANSWER


# --- adaptive -------------------------------------------------------------------------------------


class Adaptive(BuiltInStrategy, frozen=True, kw_only=True):
    """Begins with the cheapest strategy, and takes a dearer one where answers do not agree.

    First ``probes`` chains; where they do not agree, the rest of the samples of self-consistency;
    where too few of those agree, a tree of thoughts. A stage that the budget or the steps have no
    room for is left out: a branch is taken to cost what those so far did on average. The idea of
    stopping at agreement is that of Wang et al. 2022; no paper has this ladder.
    """

    short_name: ClassVar[str] = "adaptive"
    probes: Annotated[int, Meta(ge=1, le=20)] = 2
    """Chains of the first stage; one alone agrees with itself."""
    agreement: Share = 0.6
    """The part of the second stage's votes that is enough; the first stage has to agree in all."""
    sampling: SelfConsistency = field(default_factory=SelfConsistency)
    """The chains of both first stages, and their number in the second one."""
    tree: TreeOfThoughts = field(default_factory=TreeOfThoughts)
