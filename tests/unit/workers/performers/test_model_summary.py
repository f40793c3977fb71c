"""One summary: its attempts, its price, its file, and the one result that is posted of it."""

import asyncio
import os

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.extensions.provider import (
    FailureKind,
    FinishChunk,
    ModelRequest,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from cmdc_runtime.messages import Message, TokenUsage
from tests.unit.workers.performers.cancelled import cancelled_within, cancels_itself, forever
from workers.core.inputs import Summarized, SummaryFailed
from workers.core.retry import Backoff
from workers.performers import model
from workers.performers.model import Asker, Patience, Summarizer

GONE = (Message(id="m-1", role="user", content="one"), Message(id="m-2", role="user", content="2"))
REQUEST = ModelRequest(model="m", messages=GONE)
USED = UsageChunk(usage=TokenUsage(total_tokens=3))
END = FinishChunk(reason="stop")
WHOLE = (TextChunk(text="in "), TextChunk(text="short"), USED, END)
EMPTY = (TextChunk(text=" \n"), USED, END)
SILENCE_S = 10.0


class Provider:
    """Performs one script for each request: yields chunks, raises exceptions, awaits the rest."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.is_waiting = asyncio.Event()

    async def stream(self, _request):
        for one in self.scripts.pop(0):
            if isinstance(one, BaseException):
                raise one
            if callable(one):
                self.is_waiting.set()
                await one()
            else:
                yield one


async def a_while():
    await asyncio.sleep(SILENCE_S * 0.9)  # tidy: by the clock that jumps


def summarizer(provider, posted, folder, retries_max=0):
    asker = Asker(provider, Patience(retries_max, Backoff(1.0, 1.0), SILENCE_S))
    return Summarizer(asker, posted.append, session_id="s", working_dir=str(folder))


def summed_up(run, folder, *scripts):
    """Return what is posted of a summary by a provider with these scripts, one an attempt."""

    async def sum_up():
        posted = []
        made = summarizer(Provider(*scripts), posted, folder, len(scripts) - 1)
        await made.start(7, REQUEST, GONE)
        return posted

    (result,) = run(sum_up())
    return result


def test_a_summary_is_posted_with_its_price_and_its_file(run, tmp_path):
    """What goes is in the file in full."""
    result = summed_up(run, tmp_path, WHOLE)
    text = (tmp_path / ".cmdc" / "conversation_history" / "s.md").read_text()

    assert isinstance(result, Summarized)
    assert (result.work, result.text, result.usage) == (7, "in short", USED.usage)
    assert result.history_file == str(tmp_path / ".cmdc" / "conversation_history" / "s.md")
    assert "## m-1: user\n\none" in text
    assert "## m-2: user\n\n2" in text


@pytest.mark.parametrize("way", ["file", "folder", "above", "pipe"])
def test_a_history_file_that_a_tool_has_led_out_is_not_written(run, tmp_path, way):
    """Nor waited for; it costs only itself, and the log says what would help."""
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    file = work / ".cmdc" / "conversation_history" / "s.md"
    place = {"file": file, "pipe": file, "folder": file.parent, "above": file.parent.parent}[way]
    place.parent.mkdir(parents=True)
    if way == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(out / "s.md" if way == "file" else out)
    with capture_logs() as logs:
        result = summed_up(run, work, WHOLE)
    [entry] = logs

    assert (result.text, result.history_file) == ("in short", None)
    assert (entry["event"], entry["file"]) == ("history.not_written", str(file))
    assert ("absolute path" in entry["problem"]) is (way != "pipe")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param((ProviderError(FailureKind.TRANSIENT, "busy", retry_after_s=1.0),), id="busy"),
        pytest.param((TextChunk(text="half"),), id="torn"),
        pytest.param((forever,), id="silent"),
        pytest.param((TextChunk(text="half"), forever), id="silent-midway"),
        pytest.param((cancelled_within,), id="cancelled-by-itself"),
        pytest.param((cancels_itself,), id="cancels-itself"),
        pytest.param((TimeoutError("its own"),), id="its-own-timeout"),
    ],
)
def test_what_may_pass_is_tried_again(run, tmp_path, failed):
    """Nothing of the failed attempt is in the summary."""
    with capture_logs():
        result = summed_up(run, tmp_path, failed, WHOLE)
        given_up = summed_up(run, tmp_path, failed)

    assert (result.text, result.usage) == ("in short", USED.usage)
    assert isinstance(given_up, SummaryFailed)
    assert given_up.work == 7


def test_an_empty_summary_is_none_but_has_its_price(run, tmp_path):
    """It is asked for again, and both are paid for."""
    assert summed_up(run, tmp_path, EMPTY, WHOLE).usage == TokenUsage(total_tokens=6)
    assert "empty summary" in summed_up(run, tmp_path, EMPTY).reason


def test_what_does_not_pass_is_reported_at_once(run, tmp_path):
    """The reason is the provider's, and no file is written."""
    with capture_logs() as logs:
        error = ProviderError(FailureKind.PERMANENT, "no key")
        result = summed_up(run, tmp_path, (error,), WHOLE)

    assert (result.work, result.reason) == (7, "no key")
    assert [entry["event"] for entry in logs] == ["summary.failed"]
    assert not (tmp_path / ".cmdc").exists()


def test_a_bug_of_the_provider_fails_the_summary_alone(run, tmp_path):
    """The session goes on; the log has the traceback."""
    with capture_logs() as logs:
        result = summed_up(run, tmp_path, (KeyError("x"),))

    assert result.reason == "KeyError: 'x'"
    assert [entry["event"] for entry in logs] == ["provider.crashed", "summary.failed"]


def test_a_slow_summary_is_no_silence(run, tmp_path):
    """As long as something comes, thinking included, it may take its time."""
    slow = (ThinkingChunk(text="hm"), a_while, TextChunk(text="in "), a_while, *WHOLE[1:])

    assert summed_up(run, tmp_path, slow).text == "in short"


def test_a_long_summary_is_cut_and_an_endless_one_fails(run, tmp_path, monkeypatch):
    """Both bounds are reached."""
    monkeypatch.setattr(model, "ANSWER_CHARS_MAX", 5)
    monkeypatch.setattr(model, "REPLY_CHARS_MAX", 20)
    with capture_logs():
        cut = summed_up(run, tmp_path, WHOLE)
        endless = summed_up(run, tmp_path, (TextChunk(text="x" * 21), END))

    assert cut.text == "in sh"
    assert "longer than 20 characters" in endless.reason


def test_a_cancelled_summary_posts_nothing(run, tmp_path):
    """Not even where the cycle ends amid the request; once more is harmless."""

    async def cancel():
        provider, posted = Provider((forever,)), []
        made = summarizer(provider, posted, tmp_path)
        task = made.start(7, REQUEST, GONE)
        await provider.is_waiting.wait()
        made.cancel()
        made.cancel()
        await asyncio.wait([task])
        return posted, task.cancelled()

    assert run(cancel()) == ([], True)


def test_a_new_summary_ends_the_one_before(run, tmp_path):
    """There is one at a time."""

    async def twice():
        provider, posted = Provider((forever,), WHOLE), []
        made = summarizer(provider, posted, tmp_path)
        first = made.start(7, REQUEST, GONE)
        await provider.is_waiting.wait()
        await made.start(8, REQUEST, GONE)
        await asyncio.wait([first])
        return posted

    assert [result.work for result in run(twice())] == [8]


def test_a_file_that_cannot_be_written_costs_only_itself(run, tmp_path):
    """The summary is there, and says that there is no file."""
    (tmp_path / ".cmdc").write_text("in the way")
    with capture_logs() as logs:
        result = summed_up(run, tmp_path, WHOLE)

    assert (result.text, result.history_file) == ("in short", None)
    assert [entry["event"] for entry in logs] == ["history.not_written"]
