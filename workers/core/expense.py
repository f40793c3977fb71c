"""Whether the next request fits into the session's budget: the memory's side of ``budget.py``."""

from typing import Final

from cmdc_runtime.messages import Message, TokenUsage
from workers.core.budget import (
    ANSWER_TOKENS_LONGEST,
    COMPLETION_TOKENS_GUESS,
    Grant,
    Spent,
    Wanted,
    answer_room,
    capped,
    check_call,
    estimate_tokens,
    grant,
)
from workers.core.compaction import chars, context_tokens
from workers.core.state import Memory

_NO_LIMIT: Final = Grant()


def over_budget(memory: Memory) -> str | None:
    """Return which limit the next request would break, or None; None too without limits."""
    policy = memory.policy
    if policy.budget.max_total_tokens is None and policy.budget.max_cost_usd is None:
        return None
    prompt = request_tokens(memory)
    completion = min(policy.max_tokens or COMPLETION_TOKENS_GUESS, COMPLETION_TOKENS_GUESS)
    wanted = Wanted(prompt, completion, policy.price_of(memory.model, prompt, completion))
    return check_call(policy.budget, _spent(memory), _grants(memory), wanted)


def answer_tokens_max(memory: Memory) -> int | None:
    """Return the ``max_tokens`` of the next request; None leaves the length to the provider.

    It is that of the options, and no more than what is left of the budget.
    """
    room = side_answer_max(memory, memory.model, request_tokens(memory))
    bounds = [one for one in (room, memory.policy.max_tokens) if one is not None]
    return min(bounds, default=None)


def side_answer_max(memory: Memory, model: str, prompt_tokens: int) -> int | None:
    """Return what an answer to a request of its own may have: a summary's, or a plugin's.

    None without limits, and where no answer of the model is as long as what is left.
    """
    policy = memory.policy
    budget = policy.budget
    if budget.max_total_tokens is None and budget.max_cost_usd is None:
        return None
    room = answer_room(
        budget,
        _spent(memory),
        _grants(memory),
        prompt_tokens,
        lambda prompt, answer: policy.price_of(model, prompt, answer),
    )
    known = [policy.answer_max_of(model), policy.window_of(model)]
    longest = min((one for one in known if one is not None), default=ANSWER_TOKENS_LONGEST)
    return None if room is None or room >= longest else max(1, room)


def is_priced(memory: Memory) -> bool:
    """Say whether what the model in use is asked has a known cost: by a table, or by the provider.

    It is not after an answer of unknown cost, until the next that has one.
    """
    if not memory.is_costed:
        return False
    is_counted = memory.has_answered and memory.usage.cost_usd is not None
    return is_counted or memory.policy.price_of(memory.model, 1, 1) is not None


def guess(memory: Memory, answer: Message) -> TokenUsage:
    """Return about what an answer to ``memory`` took whose usage was not reported, or not readable.

    So both limits count it: each of many such answers would be free otherwise.
    """
    return guess_usage(memory, chars(answer) + len(answer.thinking or ""))


def guess_usage(memory: Memory, answer_chars: int) -> TokenUsage:
    """Return about what the next request of ``memory`` takes, with so long an answer."""
    prompt = request_tokens(memory)
    completion = estimate_tokens(answer_chars)
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        cost_usd=memory.policy.price_of(memory.model, prompt, completion),
    )


def has_lost_count(before: Memory, after: Memory) -> bool:
    """Say whether an answer is the first that a limit of the cost cannot count."""
    is_limited = after.policy.budget.max_cost_usd is not None
    return is_limited and before.is_costed and not after.is_costed


def request_tokens(memory: Memory) -> int:
    """Return about how many tokens the next request has, its system prompt and tools included."""
    added = (*memory.memory_contents, *memory.sections, ("", memory.skill_listing))
    around = memory.system_chars + sum(tool.chars for tool in memory.tools)
    around += sum(len(title) + len(text) for title, text in added)
    return context_tokens(memory.messages, around, memory.context)


def grant_child(memory: Memory, children: int, limit: Grant = _NO_LIMIT) -> Grant | str:
    """Return what the next of ``children`` subagents may spend, or which limit is reached.

    It is ``limit`` at the most.
    """
    granted = grant(memory.policy.budget, _spent(memory), _grants(memory), children)
    return granted if isinstance(granted, str) else capped(granted, limit)


def _spent(memory: Memory) -> Spent:
    return Spent(memory.usage.total_tokens, memory.usage.cost_usd)


def _grants(memory: Memory) -> tuple[Grant, ...]:
    return tuple(child.grant for child in memory.children)
