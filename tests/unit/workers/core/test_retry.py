"""What is asked again and when, and the tables that distinguish one failure from another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.extensions import provider
from cmdc_runtime.extensions.provider import FailureKind, ProviderError, classify
from workers.core import retry
from workers.core.retry import Backoff, delay_s, failure_kind, may_pass, should_retry

TRANSIENT, PERMANENT = FailureKind.TRANSIENT, FailureKind.PERMANENT
OVERFLOW, TIMEOUT = FailureKind.OVERFLOW, FailureKind.TIMEOUT
UNREACHABLE = FailureKind.UNREACHABLE


def test_every_kind_of_failure_is_retried_or_not():
    """A new kind needs a row in ``retry._RETRYABLE``."""
    assert set(retry._RETRYABLE) == set(FailureKind)


def test_who_says_nothing_has_had_an_answer_and_no_jitter():
    """Only the first request of a model is another case, and only a dice makes a delay other."""
    assert should_retry(UNREACHABLE, 1, 3) == may_pass(UNREACHABLE, has_answered=True)
    assert Backoff().jitter == 0.0
    assert delay_s(Backoff(jitter=0.5), 1) == Backoff().base_s


def test_every_kind_of_failure_can_be_found():
    """Each kind has a class, and each class, status or text leads to a kind."""
    tables = (provider.CLASS_KINDS, provider.STATUS_KINDS, provider.WEAK_CLASS_KINDS)

    assert set(provider.CLASS_KINDS.values()) == set(FailureKind)
    assert all(isinstance(kind, FailureKind) for table in tables for kind in table.values())


@pytest.mark.parametrize(
    ("status", "names", "text", "kind"),
    [
        (400, ["ContextWindowExceededError", "BadRequestError"], "", OVERFLOW),
        (400, ["BadRequestError"], "prompt is too long: 9 > 8", OVERFLOW),
        (400, ["BadRequestError"], "Maximum Context Length is 8", OVERFLOW),
        (413, ["BadRequestError"], "", OVERFLOW),
        (400, ["BadRequestError"], "no such field", PERMANENT),
        (400, ["UnsupportedParamsError", "BadRequestError"], "max_tokens", PERMANENT),
        (401, ["BadRequestError"], "connection", PERMANENT),
        (401, ["AuthenticationError"], "", PERMANENT),
        (403, ["APIError"], "", PERMANENT),
        (404, ["BadRequestError"], "", PERMANENT),
        (408, ["BadRequestError"], "", TIMEOUT),
        (504, ["Timeout", "APITimeoutError", "APIConnectionError"], "", TIMEOUT),
        (409, ["BadRequestError"], "", TRANSIENT),
        (429, ["RateLimitError"], "request too large, on tokens per minute", TRANSIENT),
        (500, ["InternalServerError"], "authentication", TRANSIENT),
        (529, ["APIError"], "", TRANSIENT),
        (None, ["APIConnectionError"], "invalid", TRANSIENT),
        (None, ["APIConnectionError"], "the context window is full", OVERFLOW),
        (None, ["ConnectionResetError", "ConnectionError", "OSError"], "", TRANSIENT),
        (None, ["TimeoutError", "OSError"], "", TIMEOUT),
        (None, ["ConnectError", "ConnectionRefusedError", "OSError"], "", UNREACHABLE),
        (None, ["APIConnectionError", "gaierror", "OSError"], "", UNREACHABLE),
        (None, ["Exception"], "invalid_api_key on this connection", PERMANENT),
        (None, ["Exception"], "socket hang up", TRANSIENT),
        (None, ["Exception"], "no idea", PERMANENT),
        (302, ["Exception"], "no idea", PERMANENT),
    ],
)
def test_the_clearest_fact_decides(status, names, text, kind):
    """A clear class, then an overflow's text, then the status, a vague class and the text."""
    assert classify(status, names, text) == kind


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (provider.OVERFLOW_TEXTS, OVERFLOW),
        (provider.PERMANENT_TEXTS, PERMANENT),
        (provider.TRANSIENT_TEXTS, TRANSIENT),
    ],
)
def test_each_text_is_found_whatever_its_case(texts, kind):
    """Where only the text is known, it decides."""
    assert {classify(None, [], f"Oh: {text.upper()}!") for text in texts} == {kind}


class ForeignError(Exception):
    """What a provider raises that does not know the contract."""

    def __init__(self, status_code):
        super().__init__("odd")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProviderError(OVERFLOW, "connection"), OVERFLOW),
        (ForeignError(503), TRANSIENT),
        (ForeignError("503"), PERMANENT),
        (ConnectionResetError("reset by peer"), TRANSIENT),
        (TimeoutError(), TIMEOUT),
        (KeyError("x"), PERMANENT),
    ],
)
def test_an_untranslated_exception_has_a_kind_too(error, kind):
    """Our own error names its kind; anything else is classified by what it shows."""
    assert failure_kind(error) == kind


def test_delays_double_up_to_the_cap():
    """2 s doubled with each attempt, at most 60 s, without jitter the same every time."""
    assert [delay_s(Backoff(), n) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(("wish_s", "wait_s"), [(7.5, 7.5), (0.0, 0.0), (3600.0, 60.0), (-1, 0.0)])
def test_the_providers_wish_counts_up_to_the_cap(wish_s, wait_s):
    """Retry-After stands in for the doubled delay, and is bounded like it."""
    assert delay_s(Backoff(), 3, retry_after_s=wish_s) == wait_s


@given(
    attempt=st.integers(1, 10_000),
    wish_s=st.none() | st.floats(0, 1e9),
    chance=st.floats(0, 1),
    jitter=st.floats(0, 1),
)
def test_no_delay_passes_the_cap_and_its_jitter(attempt, wish_s, chance, jitter):
    """Jitter adds at most its fraction, and only adds."""
    plain = delay_s(Backoff(), attempt, wish_s)
    spread = delay_s(Backoff(jitter=jitter), attempt, wish_s, chance)

    assert 0 <= plain <= spread <= 60.0 * (1 + jitter)


@pytest.mark.parametrize("kind", FailureKind)
def test_retries_are_counted_and_only_for_what_may_pass(kind):
    """A transient failure or a time-out is asked again ``max_retries`` times, others never."""
    made = [n for n in range(1, 6) if should_retry(kind, n, 3, has_answered=False)]

    assert made == ([1, 2, 3] if kind in {TRANSIENT, TIMEOUT} else [])


@pytest.mark.parametrize("kind", FailureKind)
def test_a_server_that_is_gone_is_waited_for_where_it_has_answered_before(kind):
    """An address that nobody was ever at is wrong, and stays so."""
    assert may_pass(kind, has_answered=True) == (kind in {TRANSIENT, TIMEOUT, UNREACHABLE})
    assert may_pass(kind, has_answered=False) == (kind in {TRANSIENT, TIMEOUT})
