"""What a call may give to a branch: checked where it comes in, and named by a digest.

Errors are the tool's: it gets them as ``ToolError``.
"""

import hashlib
import re
from typing import Any, Final

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.answer_schema import answer_schema, schema_problem
from cmdc_runtime.commands import PROMPT_CHARS_MAX
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.model_names import model_problem
from cmdc_runtime.ranges import TOTAL_MAX
from workers.core.budget import ROUNDING_USD, Grant
from workers.core.conversation import text_problem
from workers.core.inputs import BranchTask

DIGEST_BYTES: Final = 16
SHARES_MAX: Final = 1_000
COST_USD_MAX: Final = 1e9
"""As of a session."""
FORMAT_BYTES_MAX: Final = 2**20
"""Of a JSON Schema, which travels with the definition of the branch."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def checked_branch_id(branch_id: object) -> str:
    """Return the name of a branch.

    Raises:
        ToolError: it is none.
    """
    if not isinstance(branch_id, str) or _ID.fullmatch(branch_id) is None:
        raise ToolError(
            f"branch_id: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {plain.short(branch_id)}"
        )
    return branch_id


def branch_task(
    prompt: object, model: object, response_format: object, *, fork: bool
) -> BranchTask:
    """Return what a branch is asked.

    Raises:
        ToolError: nothing can be asked so; the text names the argument.
    """
    asked: Any = prompt  # Any: checked here
    if problem := plain.text_problem(asked, chars_max=PROMPT_CHARS_MAX) or text_problem(asked):
        raise ToolError(f"prompt: {problem}")
    if model is not None and (problem := model_problem(model)) is not None:
        raise ToolError(f"model: {problem}")
    named = None if model is None else str(model)
    return BranchTask(asked, named, _schema(response_format), bool(fork))


def branch_limit(tokens: object, cost_usd: object, shares: object) -> Grant:
    """Return what a branch may spend at the most.

    Raises:
        ToolError: a number is none, or out of its range; the text names it.
    """
    costs = (ROUNDING_USD, COST_USD_MAX)
    problems = {
        "tokens": None if tokens is None else plain.whole_problem(tokens, 1, TOTAL_MAX),
        "cost_usd": None if cost_usd is None else plain.number_problem(cost_usd, *costs),
        "shares": plain.whole_problem(shares, 1, SHARES_MAX),
    }
    for name, problem in problems.items():
        if problem is not None:
            raise ToolError(f"{name}: {problem}")
    given: Any = (tokens, cost_usd)  # Any: checked above
    return Grant(given[0], None if given[1] is None else float(given[1]))


def branch_digest(task: BranchTask) -> str:
    """Return what names the task: the same for the same one, in any process."""
    packed = msgspec.msgpack.encode(task, order="deterministic")
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).hexdigest()


def _schema(response_format: object) -> dict[str, Any] | None:  # Any: a JSON Schema
    if response_format is None:
        return None
    try:
        schema = answer_schema(response_format)
    except TypeError as error:
        raise ToolError(f"response_format: {error}") from error
    if problem := schema_problem(schema):
        raise ToolError(f"response_format: {problem}")
    if (size := len(msgspec.msgpack.encode(schema))) > FORMAT_BYTES_MAX:
        raise ToolError(f"response_format: at most {FORMAT_BYTES_MAX:,} bytes, got {size:,}")
    return schema
