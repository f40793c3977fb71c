"""How a session stands after a replayed step, as plain values for people and programs."""

from typing import Any, Final

import msgspec

from cmdc_runtime.checkpoints import plain_state
from workers.core.causes import Given, at_ms_of, ref_of
from workers.core.records import Record, SetAside
from workers.core.replaying import Difference, Played, Unplayable
from workers.core.snapshot import saved
from workers.core.state import Memory

Plain = dict[str, Any]  # Any: what JSON takes
_CODE: Final = ("tools", "plugins")
"""Fields that hold code: their names are what a person can read of it."""


def of_step(step: Played) -> Plain:
    """Return one step: what it came of, the records it keeps, and how the session stands then."""
    first, last = step.entries[0], step.entries[-1]
    return {
        "kind": "step",
        "first": first.number,
        "last": last.number,
        "incarnation": first.incarnation,
        **_cause(step.input, step.given),
        "records": [_tag(entry.record) for entry in step.entries],
        "stands": brief(step.memory),
    }


def of_left_out(left_out: SetAside, passed_over: int) -> Plain:
    """Return that the snapshot is left out, and how many records were decided on it."""
    return {
        "kind": "set_aside",
        "what": left_out.what,
        "digest": left_out.digest,
        "why": left_out.why,
        "passed_over": passed_over,
    }


def of_end(outcome: Difference | Unplayable) -> Plain:
    """Return where a replay ended before its time, and why."""
    if isinstance(outcome, Unplayable):
        return {"kind": outcome.kind, "number": outcome.number, "why": outcome.why}
    return {
        "kind": outcome.kind,
        "number": outcome.number,
        **_cause(outcome.input, outcome.given),
        "recorded": _record(outcome.recorded),
        "now": _record(outcome.now),
    }


def _cause(name: str, given: Given | None) -> Plain:
    at_ms, ref = (0, "") if given is None else (at_ms_of(given), ref_of(given))
    return {"at_ms": at_ms, "input": name, "ref": ref}


def brief(memory: Memory) -> Plain:
    """Return how a session stands, in numbers."""
    return {
        "state": memory.state.value,
        "turn": memory.turns_begun,
        "queue": len(memory.queue) + len(memory.steering),
        "calls": sum(1 for open_ in memory.calls if open_.result is None),
        "approvals": len(memory.approvals),
        "messages": len(memory.messages),
        "tokens": memory.usage.total_tokens,
        "cost_usd": memory.usage.cost_usd,
    }


def whole(memory: Memory) -> Plain:
    """Return all that a session remembers; of code and of plugins' states only whose it is."""
    told = plain_state(saved(memory))
    for name in _CODE:
        told[name] = [one["name"] for one in told[name]]
    told["plugin_states"] = {name: len(value) for name, value in told["plugin_states"]}
    return {"state": memory.state.value, **told}


def _tag(record: Record) -> str:
    return str(record.__struct_config__.tag)


def _record(record: Record | None) -> Plain | None:
    if record is None:
        return None
    told: Plain = msgspec.to_builtins(record)
    del told["input"]
    return told
