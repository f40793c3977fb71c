"""What becomes of litellm's exceptions: kind, status, wish and words, and no secret in them."""

import importlib
import itertools

import pytest

from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError
from cmdc_runtime.messages import Message
from workers.builtin.providers import _failures
from workers.builtin.providers._failures import Heard

pytestmark = [
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
KEY = "value-that-nobody-may-see"
NOTHING = _failures.Asked()


@pytest.fixture(scope="module")
def litellm():
    """Import litellm, which takes seconds."""
    return importlib.import_module("workers.builtin.providers._library").litellm


def request(**changes):
    return ModelRequest(**{"model": "openai:gpt-4o", "messages": (Message.user("hi"),)} | changes)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    """A date is compared with the clock (60 s after the epoch here); nonsense is no wish."""
    assert _failures.retry_after_s({"retry-after": value}, 60.0) == seconds


def test_no_headers_are_no_wish():
    """Most failures come without."""
    assert _failures.retry_after_s(None, 60.0) is None
    assert _failures.retry_after_s({}, 60.0) is None


def litellm_error(litellm, name, message="oh", **attributes):
    error = getattr(litellm, name)(message=message, llm_provider="openai", model="m")
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


def test_a_connection_that_breaks_has_no_status(litellm):
    """A server was asked, and it is asked again."""
    asked = Heard()
    asked.ask()
    error = litellm_error(litellm, "APIConnectionError")
    failure = _failures.translated(error, _failures.Asked(heard=asked))

    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, None)


@pytest.mark.parametrize(
    ("name", "attributes", "kind", "status"),
    [
        ("RateLimitError", {}, FailureKind.TRANSIENT, 429),
        ("AuthenticationError", {}, FailureKind.PERMANENT, 401),
        ("BadRequestError", {"status_code": 401}, FailureKind.PERMANENT, 401),
        ("BadRequestError", {}, FailureKind.PERMANENT, 400),
        ("NotFoundError", {}, FailureKind.PERMANENT, 404),
        ("ContextWindowExceededError", {}, FailureKind.OVERFLOW, 400),
        ("Timeout", {}, FailureKind.TIMEOUT, 408),
        ("InternalServerError", {}, FailureKind.TRANSIENT, 500),
        ("ServiceUnavailableError", {}, FailureKind.TRANSIENT, 503),
    ],
)
def test_litellms_exceptions_have_their_kind(litellm, name, attributes, kind, status):
    """Class and status are read from what litellm really raises."""
    failure = _failures.translated(litellm_error(litellm, name, **attributes), NOTHING)

    assert (failure.kind, failure.status) == (kind, status)
    assert failure.reason == f"{name}: oh"


def test_a_wrapped_failure_is_reported_as_what_it_wraps(litellm):
    """An exception in the middle of a stream is judged by its cause."""
    inner = litellm_error(litellm, "RateLimitError", litellm_response_headers={"retry-after": "3"})
    wrapper = litellm.exceptions.MidStreamFallbackError
    outer = wrapper("broke", "m", "openai", original_exception=inner)
    failure = _failures.translated(outer, NOTHING)

    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, 429)
    assert failure.retry_after_s == 3.0


def test_a_reason_is_one_short_line():
    """Line breaks, litellm's own words and endless bodies stay out of it."""
    error = ValueError("litellm.APIError: APIError: OpenAIException - first\n  second " + "x" * 999)
    reason = _failures.reason_of(error, frozenset())

    assert reason.startswith("ValueError: first second xxx")
    assert len(reason) == _failures.REASON_MAX_CHARS
    assert _failures.reason_of(TimeoutError(), frozenset()) == "TimeoutError"


SECRETS = {
    "api_key": ({"api_key": KEY}, f"bad key {KEY}"),
    "header": ({"extra_headers": {"Authorization": f"Basic {KEY}"}}, f"got 'Basic {KEY}'"),
    "environment": ({}, f"bad key {KEY}-env"),
    "bearer": ({}, f"header Bearer {KEY}"),
    "url": ({}, f"GET http://x/y?a=1&key={KEY}&b=2"),
    "prefix": ({}, f"Incorrect API key provided: sk-{KEY}"),
    "masked": ({}, "Incorrect API key provided: sk-nobod**************ysee"),
}


@pytest.mark.parametrize(("options", "text"), SECRETS.values(), ids=SECRETS)
def test_no_key_gets_into_an_error(monkeypatch, options, text):
    """Neither the reason nor the causes that a traceback prints hold a secret."""
    monkeypatch.setenv("SOME_API_KEY", f"{KEY}-env")
    with (
        pytest.raises(ProviderError) as caught,
        _failures.border(request(provider_opts=options)),
    ):
        raise ValueError(text)

    assert "nobod" not in str(caught.value)
    assert "[hidden]" in caught.value.reason
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_harmless_cause_is_kept():
    """Who debugs a failure sees where it came from."""
    cause = KeyError("x")
    with pytest.raises(ProviderError) as caught, _failures.border(request()):
        raise cause

    assert caught.value.__cause__ is cause
    assert caught.value.kind == FailureKind.PERMANENT


def heard(status, body):
    """Return what was noted of a server that refuses."""
    found = Heard()
    found.ask()
    found.refuse(status)
    found.note(body)
    return found


def test_a_code_says_what_the_words_do_not(litellm):
    """It is a part of what the server has said."""
    error = litellm_error(litellm, "BadRequestError", "no")
    said = heard(400, b'{"error": {"message": "no", "code": "context_length_exceeded"}}')

    failure = _failures.translated(error, _failures.Asked(heard=said))
    assert failure.kind == FailureKind.OVERFLOW
    assert _failures.translated(error, NOTHING).kind == FailureKind.PERMANENT


@pytest.mark.parametrize(
    "name", ["ContextWindowExceededError", "RateLimitError", "Timeout", "AuthenticationError"]
)
def test_a_class_chosen_by_words_does_not_outrank_the_server(litellm, name):
    """Clients look for these words in what was typed, too."""
    error = litellm_error(litellm, name)

    failure = _failures.translated(error, _failures.Asked(heard=heard(503, b"busy")))
    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, 503)


@pytest.mark.parametrize(
    "words", ["Missing Acme tenant", "maximum context length", "the connection timeout is 500"]
)
def test_what_fails_before_anybody_is_asked_is_not_asked_again(litellm, words):
    """Whatever the client says of it, it fails the next time as well."""
    for name in ("APIConnectionError", "InternalServerError"):
        error = litellm_error(litellm, name, words)
        error.status_code = None
        assert _failures.translated(error, NOTHING).kind == FailureKind.PERMANENT
    assert _failures.translated(ValueError(words), NOTHING).kind == FailureKind.PERMANENT


def test_a_key_is_not_said_to_be_missing_by_a_server_that_repeats(litellm):
    """A conversation may be about keys."""
    error = litellm_error(litellm, "BadRequestError", "you said: missing credentials")
    failure = _failures.translated(error, _failures.Asked("openai:m", heard=heard(400, b"unfit")))

    assert failure.reason == "BadRequestError: you said: missing credentials"


def test_an_earlier_failure_does_not_colour_the_next():
    """A retry inside the handler of a time-out is judged by its own exception only."""
    error = ValueError("invalid")
    error.__context__ = ProviderError(FailureKind.TIMEOUT, "late")
    error.__context__.__context__ = TimeoutError()

    assert _failures.translated(error, NOTHING).kind == FailureKind.PERMANENT


BODIES = {
    "anthropic": (
        """b'{"type":"error","error":{"type":"api_error","message":"Over \\"there\\""}}'""",
        'Over "there"',
    ),
    "google": ("""b'{"error":{"code":500,"message":"boom","status":"INTERNAL"}}'""", "boom"),
    "advice": (
        """b'{"error":{"message":"boom"}}'. Handle with `litellm.InternalServerError`.""",
        "boom",
    ),
    "another shape": ("""b'{"detail":"boom"}'""", """b'{"detail":"boom"}'"""),
    "cut": ("""b'{"error":{"message":"bo""", """b'{"error":{"message":"bo"""),
}


@pytest.mark.parametrize(("words", "message"), BODIES.values(), ids=BODIES)
def test_a_body_in_the_place_of_a_message_gives_its_message(words, message):
    """Litellm quotes whole answers; what is none of the known shapes is left as it is."""
    error = ValueError(f"litellm.InternalServerError: AnthropicException - {words}")

    assert _failures.reason_of(error, frozenset()) == f"ValueError: {message}"


class VendorError(Exception):
    """As litellm's own, below those of the OpenAI family."""

    def __init__(self, status_code):
        super().__init__("no")
        self.status_code = status_code


def test_the_vendors_status_counts_and_not_litellms(litellm):
    """Litellm calls Anthropic's 413 a bad request."""
    error = litellm_error(litellm, "BadRequestError", "no")
    error.__cause__ = VendorError(413)
    failure = _failures.translated(error, NOTHING)

    assert (failure.kind, failure.status) == (FailureKind.OVERFLOW, 413)


def test_no_answer_has_no_status(litellm):
    """Litellm calls a connection that closed an answer with status 500."""
    error = litellm_error(litellm, "InternalServerError", "Server disconnected")
    error.__cause__ = type("TransportError", (Exception,), {})()

    assert _failures.translated(error, NOTHING).status is None


def chained(*causes):
    """Return the first of some exceptions, each with the next one as its cause."""
    for error, cause in itertools.pairwise(causes):
        error.__cause__ = cause
    return causes[0]


class InvalidURL(Exception):
    """As httpx's."""


OWN_WORDS = {
    "too much": (
        chained(ValueError("x"), _failures.RefusedAnswerError("too much of it")),
        (FailureKind.PERMANENT, "too much of it"),
    ),
    "nobody there": (
        chained(ValueError("x"), _failures.NoServerError("no server at http://h:1: refused")),
        (FailureKind.UNREACHABLE, "no server at http://h:1: refused"),
    ),
    "no address": (
        chained(ValueError("x"), InvalidURL("/h:1/v1")),
        (
            FailureKind.PERMANENT,
            "the address of openai:m is no URL that can be asked: /h:1/v1; api_base reads like http://host:port/path",
        ),
    ),
    "no provider": (
        ValueError("LLM Provider NOT provided. Pass in ..."),
        (
            FailureKind.PERMANENT,
            (
                "no provider is known by the name in model 'openai:m'; a model reads like"
                " openai:gpt-4o"
            ),
        ),
    ),
    "no key": (
        ValueError("Missing credentials. Please pass `api_key`, or set the `X_API_KEY` variable."),
        (
            FailureKind.PERMANENT,
            (
                "there is no key for openai:m: set X_API_KEY where create_agent is called, or in"
                " the daemon's environment, or give create_agent(api_key=…)."
            ),
        ),
    ),
    "a key that is not set": (
        ValueError("Missing: FIREWORKS_API_KEY is not set. Set the variable, or pass it."),
        (
            FailureKind.PERMANENT,
            (
                "there is no key for openai:m: set FIREWORKS_API_KEY where create_agent is called,"
                " or in the daemon's environment, or give create_agent(api_key=…)."
            ),
        ),
    ),
    "no administrator's key": (
        ValueError("Missing credentials. Set the X_API_KEY or X_ADMIN_KEY environment variable."),
        (
            FailureKind.PERMANENT,
            (
                "there is no key for openai:m: set X_API_KEY where create_agent is called, or in"
                " the daemon's environment, or give create_agent(api_key=…)."
            ),
        ),
    ),
    "no package": (
        chained(ValueError("x"), ModuleNotFoundError("No module named 'google.auth'")),
        (
            FailureKind.PERMANENT,
            (
                "openai:m needs a package that the daemon's Python does not have: No module named"
                " 'google.auth'; install it there"
            ),
        ),
    ),
}


@pytest.mark.parametrize(("error", "expected"), OWN_WORDS.values(), ids=OWN_WORDS)
def test_what_cannot_work_is_reported_by_name(error, expected):
    """The variable, the address, the model: whoever reads it knows what to change."""
    failure = _failures.translated(error, _failures.Asked("openai:m"))

    assert (failure.kind, failure.reason) == expected


def test_a_model_that_a_server_does_not_have_is_named():
    """Its own words may say no more than that something was not found."""
    failure = _failures.translated(VendorError(404), _failures.Asked("openai:gpt-99"))

    assert failure.reason == "openai:gpt-99: VendorError: no"


def test_an_address_is_not_asked_for_as_a_key():
    """Of a server that needs none, litellm says that its address is missing."""
    asked = _failures.Asked("ollama:m", missing=["OLLAMA_API_BASE"])
    failure = _failures.translated(VendorError(401), asked)

    assert failure.reason.startswith("there is no key for ollama:m: set the provider's variable wh")


def test_a_server_that_asks_for_a_key_is_reported_with_the_variable():
    """The library sent none; the server's own words say only that it is wrong."""
    with (
        pytest.raises(ProviderError) as caught,
        _failures.border(request(model="groq:m"), lambda _request: ["GROQ_API_KEY"]),
    ):
        raise VendorError(401)

    assert caught.value.reason.startswith("there is no key for groq:m: set GROQ_API_KEY where")
    assert caught.value.reason.endswith(" VendorError: no")


def test_a_key_that_was_given_is_not_said_to_be_missing():
    """A server may miss another one."""
    with (
        pytest.raises(ProviderError) as caught,
        _failures.border(request(provider_opts={"api_key": KEY}), lambda _request: ["X_KEY"]),
    ):
        raise ValueError("Missing credentials for X_API_KEY")

    assert caught.value.reason == "ValueError: Missing credentials for X_API_KEY"


def test_a_text_that_is_too_long_to_be_looked_through_is_no_cause():
    """Its end might hold a secret, and a traceback would print it."""
    with pytest.raises(ProviderError) as caught, _failures.border(request()):
        raise ValueError("a" * 100_000)

    assert caught.value.__cause__ is None


def test_an_exception_that_cannot_be_read_is_reported_by_its_name():
    """Foreign code makes the text of a foreign exception."""

    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    with pytest.raises(ProviderError) as caught, _failures.border(request()):
        raise MuteError

    assert caught.value.reason.startswith("MuteError: <MuteError has no text")
