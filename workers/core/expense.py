"""Whether the next request fits into the session's budget: the memory's side of ``budget.py``."""

from workers.core.budget import (
    COMPLETION_TOKENS_GUESS,
    Grant,
    Spent,
    Wanted,
    check_call,
    grant,
)
from workers.core.compaction import context_tokens
from workers.core.state import Memory


def over_budget(memory: Memory) -> str | None:
    """Return which limit the next request would break, or None; None too without limits."""
    policy = memory.policy
    if policy.budget.max_total_tokens is None and policy.budget.max_cost_usd is None:
        return None
    prompt = request_tokens(memory)
    completion = policy.max_tokens or COMPLETION_TOKENS_GUESS
    wanted = Wanted(prompt, completion, policy.price_of(memory.model, prompt, completion))
    return check_call(policy.budget, _spent(memory), _grants(memory), wanted)


def is_priced(memory: Memory) -> bool:
    """Say whether what the model in use is asked has a cost that is known: by a table, or told.

    It is not after an answer whose usage nobody could read, until the next that has a cost.
    """
    if not memory.is_costed:
        return False
    is_told = memory.has_answered and memory.usage.cost_usd is not None
    return is_told or memory.policy.price_of(memory.model, 1, 1) is not None


def request_tokens(memory: Memory) -> int:
    """Return about how many tokens the next request has, its system prompt and tools included."""
    added = (*memory.memory_contents, *memory.sections)
    around = memory.policy.system_chars + sum(tool.chars for tool in memory.tools)
    around += sum(len(title) + len(text) for title, text in added)
    return context_tokens(memory.messages, around, memory.context)


def grant_child(memory: Memory, children: int) -> Grant | str:
    """Return what the next of ``children`` subagents may spend, or which limit is reached."""
    return grant(memory.policy.budget, _spent(memory), _grants(memory), children)


def _spent(memory: Memory) -> Spent:
    return Spent(memory.usage.total_tokens, memory.usage.cost_usd)


def _grants(memory: Memory) -> tuple[Grant, ...]:
    return tuple(child.grant for child in memory.children)
