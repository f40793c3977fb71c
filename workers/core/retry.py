"""Whether a failed model request is asked again, and after how long.

The kinds of failure and the tables that find them are the provider contract's
(``cmdc_runtime.extensions.provider.classify``), since built-in providers stand on it too.
The caller counts the attempts, draws the chance and waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.errors import UsageError
from cmdc_runtime.extensions.provider import FailureKind, ProviderError, classify

# fmt: off
_RETRYABLE: Final[Mapping[FailureKind, tuple[bool, bool]]] = {
    # the model has:         not answered, answered before
    FailureKind.TRANSIENT:   (True,        True),
    FailureKind.TIMEOUT:     (True,        True),
    FailureKind.PERMANENT:   (False,       False),
    # The same request can't fit; a shorter one is not a retry.
    FailureKind.OVERFLOW:    (False,       False),
    # A wrong address stays wrong. A server that was there is most likely starting again.
    FailureKind.UNREACHABLE: (False,       True),
}
# fmt: on
_DOUBLINGS_MAX: Final = 64
"""Beyond this any delay is at its cap; a larger exponent would only overflow."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts, in seconds.

    ``jitter`` is the largest part of a delay that may be added to it, so that many sessions do not
    come back at the same moment.
    """

    base_s: float = 2.0
    cap_s: float = 60.0
    jitter: float = 0.0


def failure_kind(error: BaseException) -> FailureKind:
    """Return the kind of any exception, also of one that a provider forgot to translate.

    A wrong call of ours is permanent whatever its text says: the same code makes it again.
    """
    if isinstance(error, ProviderError):
        return error.kind
    if isinstance(error, UsageError):
        return FailureKind.PERMANENT
    try:
        status, text = getattr(error, "status_code", None), str(error)
    except BaseException:  # noqa: BLE001 - both may be code of a foreign class
        status, text = None, ""
    names = [cls.__name__ for cls in type(error).__mro__]
    return classify(status if isinstance(status, int) else None, names, text)


def should_retry(
    kind: FailureKind, attempt: int, max_retries: int, *, has_answered: bool = True
) -> bool:
    """Say whether retry number ``attempt`` (from 1) may be made after a failure of ``kind``.

    ``has_answered``: the session has had an answer of the same model with the same options.
    """
    return may_pass(kind, has_answered=has_answered) and attempt <= max_retries


def may_pass(kind: FailureKind, *, has_answered: bool) -> bool:
    """Say whether the same request may succeed at another time."""
    return _RETRYABLE[kind][has_answered]


def delay_s(
    backoff: Backoff, attempt: int, retry_after_s: float | None = None, chance: float = 0.0
) -> float:
    """Return the seconds to wait before retry number ``attempt`` (from 1).

    The delay doubles with each attempt up to the cap. A provider that says when to come back is
    believed in place of that, up to the same cap. ``chance`` is from 0 to 1; it scales the jitter.
    """
    doubled = backoff.base_s * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)
    wanted = doubled if retry_after_s is None else max(retry_after_s, 0.0)
    return min(wanted, backoff.cap_s) * (1.0 + backoff.jitter * chance)
