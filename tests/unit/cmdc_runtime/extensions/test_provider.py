"""The contract of providers: what kind of failure is what, and what a provider may leave out."""

import pytest

from cmdc_runtime.extensions.provider import (
    CLASS_KINDS,
    OVERFLOW_TEXTS,
    PERMANENT_TEXTS,
    STATUS_KINDS,
    TRANSIENT_TEXTS,
    FailureKind,
    ModelRequest,
    ModelTable,
    classify,
    context_window_of,
    price_usd_of,
)

T, P = FailureKind.TRANSIENT, FailureKind.PERMANENT
O, TO = FailureKind.OVERFLOW, FailureKind.TIMEOUT  # noqa: E741


class Plain:
    """A provider that only answers."""

    async def stream(self, request):
        return
        yield


class Knowing(Plain):
    """A provider that knows its models, too."""

    def context_window(self, model):
        return 8_000 if model == "a:b" else None

    def price_usd(self, model, prompt_tokens, completion_tokens):
        return 0.001 * prompt_tokens + 0.002 * completion_tokens if model == "a:b" else None


def test_a_provider_need_not_know_its_models():
    """Then nothing is known: no window, no price."""
    assert not isinstance(Plain(), ModelTable)
    assert context_window_of(Plain(), "a:b") is None
    assert price_usd_of(Plain(), "a:b", 1, 1) is None


def test_a_provider_that_knows_its_models_is_asked():
    """It may still not know one of them."""
    assert isinstance(Knowing(), ModelTable)
    assert context_window_of(Knowing(), "a:b") == 8_000
    assert context_window_of(Knowing(), "a:c") is None
    assert price_usd_of(Knowing(), "a:b", 10, 5) == pytest.approx(0.02)
    assert price_usd_of(Knowing(), "a:c", 10, 5) is None


def test_a_request_asks_for_free_text_unless_told_otherwise():
    """A schema is an option."""
    assert ModelRequest(model="a:b", messages=()).response_format is None


@pytest.mark.parametrize("name", CLASS_KINDS)
def test_a_clear_class_decides_whatever_the_status(name):
    """A client that names the failure knows best."""
    assert classify(500, [name, "Exception"], "text") == CLASS_KINDS[name]


@pytest.mark.parametrize("text", OVERFLOW_TEXTS)
def test_each_overflow_text_is_known_where_the_status_is_unclear(text):
    """In any case of letters; behind a clear status the same words mean something else."""
    assert classify(400, [], f"Oh: {text.upper()}!") == O
    assert classify(None, [], text) == O
    assert classify(401, [], text) == P


@pytest.mark.parametrize("text", PERMANENT_TEXTS)
def test_permanent_texts_win_over_transient_ones(text):
    """What cannot succeed is never asked again."""
    assert classify(None, [], f"{text}, 503, timeout") == P


@pytest.mark.parametrize("text", TRANSIENT_TEXTS)
def test_each_transient_text_is_known(text):
    """The last resort, where there is neither class nor status."""
    assert classify(None, [], text) == T


@pytest.mark.parametrize("status", STATUS_KINDS)
def test_a_status_with_a_meaning_of_its_own_decides(status):
    """Before what its class of statuses says."""
    assert classify(status, ["APIConnectionError"], "odd") == STATUS_KINDS[status]


@pytest.mark.parametrize(
    ("status", "names", "text", "kind"),
    [
        (418, [], "odd", P),
        (599, [], "odd", T),
        (302, [], "odd", P),
        (302, ["ConnectionError"], "odd", T),
        (None, ["Sub", "APIConnectionError"], "odd", T),
        (None, [], "odd", P),
        (500, [], "prompt is too long", T),
        (None, ["TimeoutError"], "", TO),
    ],
)
def test_the_rest_goes_by_status_then_by_hint(status, names, text, kind):
    """What nothing is known of is permanent: no retry is safe for it."""
    assert classify(status, names, text) == kind
