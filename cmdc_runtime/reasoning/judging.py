"""What strategies ask judges, and the types of their answers; the words are ours."""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.model_names import check_models, model_problem

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


def check_scorers(score: object, judge: object) -> None:
    """Refuse a model's name as ``score``, both at once, and a judge that names no model.

    Raises:
        ValueError: it says which option takes what.
    """
    if isinstance(score, str) and _names_model(score):
        raise ValueError(
            f"score: {score!r} names a model, and a score is a function of a text and the question,"
            f" or its 'module:name': give a model that judges as judge={score!r}"
        )
    if score is not None and judge is not None:
        raise ValueError("judge: a score takes the place of judges: give one of them")
    check_models(judge=judge)


def _names_model(text: str) -> bool:
    is_model = model_problem(text) is None and _FUNCTION.fullmatch(text) is None
    return is_model or text.partition(":")[0] in _PROVIDERS
