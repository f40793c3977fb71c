"""Guardrails: functions of the application that look at what is asked, and at what is answered.

One gets a text and what a plugin sees of the session, and returns None where it passes. A reason,
as a str or a ``Tripwire``, ends the cycle: whoever waits for it gets ``GuardrailTripped``.
"""

from typing import Any, Final

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.option_checks import check_returns, check_takes, is_function
from cmdc_runtime.plain import short

GUARDRAILS_MAX: Final = 32
"""For each side of a session: all of them run at once, each perhaps in a thread of its own."""


class Tripwire(msgspec.Struct, frozen=True, metaclass=Checked):
    """What a guardrail returns that does not pass; ``info`` is plain data for the application."""

    reason: str
    info: Any = None


def check_guardrails(value: object) -> list[object]:
    """Return a list of functions, or names of some; that they can travel shows when packed."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of functions")
    if len(value) > GUARDRAILS_MAX:
        raise TypeError(f"expected at most {GUARDRAILS_MAX} functions")
    for one in value:
        if not is_function(one):
            raise TypeError(f'expected functions, or "module:name" of one, got {short(one)}')
        check_returns(one)
        check_takes(one, "text", "context")
    return list(value)
