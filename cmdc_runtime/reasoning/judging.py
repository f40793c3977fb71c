"""What strategies ask judges, and the types of their answers; the words are ours."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

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
VOTE: Final = """\
You compare candidates for the next step of a solution. Weigh each against the task: what is \
right, what is wrong, and how well it can be built upon. Then give the number of the best one, \
and one sentence why."""
"""For a judge of several thoughts."""
