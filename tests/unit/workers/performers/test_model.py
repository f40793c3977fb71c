"""One request to a model: its stream, its silence, and the one way in which it ends."""

import asyncio

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.extensions.provider import (
    FailureKind,
    FinishChunk,
    ModelRequest,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from cmdc_runtime.messages import Message, TokenUsage
from tests.unit.workers.performers.cancelled import cancelled_within, cancels_itself, forever
from workers.core.inputs import (
    FirstChunk,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    TextArrived,
    ThoughtArrived,
)
from workers.performers import model
from workers.performers.model import CallSettings, ModelCallbacks, ModelCaller

WORK = 7
REQUEST = ModelRequest(model="m", messages=(Message.user("hi"),), system="be kind")
TEXT, END = TextChunk(text="hello"), FinishChunk(reason="stop")
USED = TokenUsage(total_tokens=3)
SETTINGS = CallSettings(stall_after_s=30.0, stall_timeout_s=100.0)


async def at_once():
    """Wait for no observer."""


class Provider:
    """Yields chunks, raises exceptions, and awaits whatever else it is given."""

    def __init__(self, *script):
        self.script = script
        self.requests = []
        self.is_closed = asyncio.Event()
        self.is_waiting = asyncio.Event()

    async def stream(self, request):
        self.requests.append(request)
        try:
            for one in self.script:
                if isinstance(one, BaseException):
                    raise one
                if callable(one):
                    self.is_waiting.set()
                    await one()
                else:
                    yield one
        finally:
            self.is_closed.set()


async def unwilling():
    """Turn a cancellation into a failure, as clients do that wrap whatever they catch."""
    try:
        await forever()
    except asyncio.CancelledError:
        raise ProviderError(FailureKind.PERMANENT, "connection closed") from None


def calling(provider, posted, room=at_once):
    return ModelCaller(provider, SETTINGS, ModelCallbacks(posted.append, room))


async def called(*script):
    """Make one request to a provider with this script; return what was posted."""
    provider, posted = Provider(*script), []
    await calling(provider, posted).call(WORK, REQUEST)
    assert provider.is_closed.is_set()
    return posted


def test_an_answer_is_posted_as_it_comes(run):
    """The first chunk, each piece, then the whole; all name their work."""
    call = ToolCallChunk(index=0, call_id="a", name="read", arguments="{}")
    thought = ThinkingChunk(text="hm")
    posted = run(called(thought, TEXT, call, UsageChunk(usage=USED), END))
    *pieces, ended = posted

    assert pieces == [FirstChunk(7), ThoughtArrived(7, "hm"), TextArrived(7, "hello")]
    assert isinstance(ended, StreamEnded)
    assert (ended.work, ended.reply.text, ended.reply.usage) == (7, "hello", USED)
    assert [one.name for one in ended.reply.tool_calls] == ["read"]


def test_the_provider_gets_the_request(run):
    """It is passed on as it was made."""

    async def ask():
        provider = Provider(END)
        await calling(provider, []).call(WORK, REQUEST)
        return provider.requests

    assert run(ask()) == [REQUEST]


@pytest.mark.parametrize("before", [(), (TEXT,)], ids=["at once", "after text"])
def test_a_failure_is_posted_once(run, before):
    """With its kind, its reason and the provider's own wish; the text before it stays posted."""
    error = ProviderError(FailureKind.TRANSIENT, "busy", retry_after_s=4.0)
    *pieces, failed = run(called(*before, error))

    assert len(pieces) == 2 * len(before)
    assert isinstance(failed, StreamFailed)
    assert (failed.kind, failed.reason, failed.retry_after_s) == (error.kind, "busy", 4.0)
    assert 0 <= failed.chance < 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), FailureKind.PERMANENT),
        (ConnectionError("reset"), FailureKind.TRANSIENT),
        (TimeoutError("late"), FailureKind.TIMEOUT),
    ],
    ids=repr,
)
def test_a_providers_bug_is_this_requests_failure(run, error, kind):
    """It is classified as well as it can be, and logged with its traceback."""
    with capture_logs() as logs:
        (failed,) = run(called(error))

    assert failed.kind is kind
    assert failed.reason == f"{type(error).__name__}: {error}"
    assert [entry["event"] for entry in logs] == ["provider.crashed"]


class Unmade(ProviderError):
    """Its class never ran."""

    def __init__(self):
        Exception.__init__(self, "no fields")


def with_field(**fields):
    error = ProviderError("transient", "busy")
    vars(error).update(fields)
    return error


class Unreadable(Exception):
    """Whatever is asked of it fails."""

    def __str__(self):
        raise ZeroDivisionError

    @property
    def status_code(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unmade(), "Unmade: its __init__ has to call super().__init__(kind, reason)"),
        (with_field(kind="rate_limit"), "ProviderError: kind: expected one of transient"),
        (with_field(reason=5), "ProviderError: reason: expected a text, got 5"),
        (with_field(retry_after_s=float("nan")), "ProviderError: retry_after_s: expected a finite"),
        (Unreadable(), "Unreadable: <Unreadable has no text"),
        (SystemExit(503), "the provider's code tried to end the process: SystemExit: 503"),
        (KeyboardInterrupt(), "the provider's code tried to end the process: KeyboardInterrupt"),
        (GeneratorExit(), "the provider's code tried to end the process: GeneratorExit"),
    ],
    ids=lambda one: one[:40] if isinstance(one, str) else type(one).__name__,
)
def test_whatever_a_provider_raises_ends_the_request_at_worst(run, error, reason):
    """In one line, at once, and with a traceback in the log; the process goes on."""
    with capture_logs() as logs:
        (failed,) = run(called(error))

    assert failed.kind is FailureKind.PERMANENT
    assert reason in failed.reason
    assert "\n" not in failed.reason
    assert [entry["event"] for entry in logs] == ["provider.crashed"]


def test_a_failure_whose_kind_is_a_word_is_of_that_kind(run):
    """It may have been set behind the making."""
    (failed,) = run(called(with_field(kind="timeout", retry_after_s="3")))

    assert failed.kind is FailureKind.TIMEOUT
    assert failed.retry_after_s == 3.0


def test_what_can_not_be_sent_is_marked(run):
    """Half of a surrogate pair from a provider must not end the process."""
    call = ToolCallChunk(index=0, name="t\ud83d", arguments="\ud83d")
    posted = run(called(TextChunk(text="a\ud83d"), ThinkingChunk(text="\ude00"), call, END))
    (call,) = posted[-1].reply.tool_calls

    assert posted[1:3] == [TextArrived(7, "a\ufffd"), ThoughtArrived(7, "\ufffd")]
    assert (call.name, call.malformed) == ("t\ufffd", "\ufffd")
    assert run(called(ValueError("\ud83d")))[-1].reason == "ValueError: �"


@pytest.mark.parametrize("script", [(), (TEXT,)], ids=["nothing", "half"])
def test_a_stream_that_breaks_off_is_a_failure(run, script):
    """Without a finish the reply may be cut; it may be tried again, and nobody waits for ever."""
    *_, failed = run(called(*script))

    assert isinstance(failed, StreamFailed)
    assert failed.kind is FailureKind.TRANSIENT


def test_an_endless_reply_is_cut_off(run, monkeypatch):
    """Text, thinking and arguments together have a bound; asking again would not help."""
    monkeypatch.setattr(model, "REPLY_CHARS_MAX", 12)
    call = ToolCallChunk(index=0, call_id="a", name="read", arguments="{}")
    *_, failed = run(called(ThinkingChunk(text="hello"), TEXT, call, call, END))

    assert failed.kind is FailureKind.PERMANENT
    assert "12 characters" in failed.reason


def test_too_many_calls_end_the_reply_at_once(run, monkeypatch):
    """Nobody reads on: what comes of the rest may take minutes."""
    monkeypatch.setattr(model, "CALLS_MAX", 2)
    calls = [ToolCallChunk(index=at, call_id=f"c-{at}", name="read") for at in range(3)]
    *_, failed = run(called(*calls, forever, END))

    assert failed.kind is FailureKind.PERMANENT
    assert failed.reason == "the reply asks for more than 2 tool calls"
    same = [ToolCallChunk(index=at % 2, call_id=f"c-{at}", name="read") for at in range(2)]
    assert isinstance(run(called(*same, END))[-1], StreamEnded)


@pytest.mark.parametrize("cancelled", [cancelled_within, cancels_itself])
def test_a_request_that_its_provider_cancels_is_a_failure(run, cancelled):
    """Nobody here cancelled it, so somebody has to hear of its end."""
    (failed,) = run(called(cancelled))

    assert failed.kind is FailureKind.TRANSIENT


@pytest.mark.parametrize("wait", [forever, unwilling])
def test_a_cancelled_request_posts_nothing_that_counts(run, wait):
    """Its stream is closed at once; a second cancel finds nothing to do."""

    async def cancel():
        provider, posted = Provider(TEXT, wait), []
        caller = calling(provider, posted)
        task = caller.call(WORK, REQUEST)
        await provider.is_waiting.wait()
        caller.cancel()
        caller.cancel()
        await asyncio.wait([task])
        assert provider.is_closed.is_set()
        return posted[2:]

    left = run(cancel())

    assert left == [] or wait is unwilling


def test_cancelling_before_any_request_is_harmless(run):
    """An abort may come at any time."""

    async def cancel():
        calling(Provider(), []).cancel()

    run(cancel())


@pytest.mark.parametrize("wait", [forever, unwilling])
@pytest.mark.parametrize("before", [(), (TEXT,)], ids=["before chunks", "between chunks"])
def test_silence_is_reported_and_then_ended(run, wait, before):
    """Reported every 30 s, then ended as a time-out, whatever the provider makes of it."""
    posted = run(called(*before, wait))
    *silent, failed = posted[2 * len(before) :]

    assert silent == [StreamSilent(7, 30.0), StreamSilent(7, 60.0), StreamSilent(7, 90.0)]
    assert isinstance(failed, StreamFailed)
    assert (failed.kind, failed.reason) == (FailureKind.TIMEOUT, "silent for 100 s")


def pause(seconds):
    return lambda: asyncio.sleep(seconds)  # tidy: by the clock that jumps


def test_chunks_keep_a_request_alive(run):
    """A stream that takes long in all but is never silent for long is not ended."""
    posted = run(called(*[TEXT, pause(29)] * 8, END))

    assert isinstance(posted[-1], StreamEnded)
    assert [one for one in posted if isinstance(one, StreamSilent)] == []


def test_silence_is_counted_anew_after_each_chunk(run):
    """The time that is reported is that since the last one."""
    posted = run(called(pause(45), TEXT, pause(35), END))

    assert [one.elapsed_s for one in posted if isinstance(one, StreamSilent)] == [30.0, 30.0]


def test_observers_that_cannot_keep_up_are_waited_for(run):
    """No chunk is read meanwhile, and the provider is not charged with the silence."""
    rooms = []

    async def wait():
        posted = []

        async def room():
            rooms.append(len(posted))
            await pause(500)()

        await calling(Provider(TEXT, TEXT, pause(31), END), posted, room).call(WORK, REQUEST)
        return posted

    posted = run(wait())

    assert [type(one) for one in posted] == [
        FirstChunk,
        TextArrived,
        TextArrived,
        StreamSilent,
        StreamEnded,
    ]
    assert rooms == [2, 3, 4]
