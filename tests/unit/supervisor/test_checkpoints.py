"""Checkpoints that come in pieces: one body, or nothing."""

import asyncio

import pytest

from cmdc_runtime.checkpoints import CHECKPOINT_BYTES_MAX, CheckpointFacts
from cmdc_runtime.client.transfer import keep_checkpoint
from cmdc_runtime.errors import Overloaded, TransientError, UsageError
from cmdc_runtime.pages import PAGE_BYTES
from cmdc_runtime.requests import KeepCheckpoint
from supervisor.api.transfer import Pieces
from supervisor.core.limits import PIECES_OPEN_MAX
from tests.unit.supervisor.services import play


def facts(checkpoint_id="c-1"):
    return CheckpointFacts(
        session_id="s",
        checkpoint_id=checkpoint_id,
        label=None,
        saved_ms=1,
        schema_version=1,
        metadata=b"\x80",
    )


class Daemon:
    """Takes pieces, each as often as a test says; ``kept`` is what came of them."""

    def __init__(self, times=1):
        self.pieces, self.kept, self.times = Pieces(), [], times

    async def ask(self, request):
        for _ in range(self.times if request.size and len(self.kept) == 0 else 1):
            if (body := self.pieces.put(("s-1", "c-1"), request)) is not None:
                self.kept.append(body)
                return


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES])
@pytest.mark.parametrize("times", [1, 2])
def test_a_body_comes_out_as_it_went_in(size, times):
    """However long it is, and though a piece comes twice."""
    body = bytes(range(256)) * (size // 256 + 1)
    daemon = Daemon(times)
    play(lambda: keep_checkpoint(daemon.ask, facts(), body[:size]))

    assert daemon.kept == [body[:size]]


def put(pieces, offset, body, size, checkpoint_id="c-1"):
    request = KeepCheckpoint(facts=facts(checkpoint_id), body=body, offset=offset, size=size)
    return pieces.put(("s-1", request.facts.checkpoint_id), request)


def test_a_piece_without_those_before_it_is_refused():
    """They went to a daemon that is gone; from the start again it goes."""

    async def scenario():
        pieces = Pieces()
        with pytest.raises(TransientError):
            put(pieces, 2, b"cd", 4)
        assert put(pieces, 0, b"ab", 6) is None
        for offset, size in ((4, 6), (2, 5)):
            with pytest.raises(TransientError):
                put(pieces, offset, b"ef", size)
        assert put(pieces, 0, b"AB", 4) is None
        return put(pieces, 2, b"CD", 4)

    assert play(scenario) == b"ABCD"


def test_more_than_was_announced_or_may_be_kept_is_refused():
    """And forgotten."""

    async def scenario():
        pieces = Pieces()
        for size in (-1, CHECKPOINT_BYTES_MAX + 1):
            with pytest.raises(UsageError, match="body"):
                put(pieces, 0, b"a", size)
        with pytest.raises(UsageError, match="announced"):
            put(pieces, 0, b"abc", 2)
        return pieces._coming

    assert play(scenario) == {}


def test_only_some_come_in_at_a_time(monkeypatch):
    """One that nobody goes on with makes room for the next."""

    async def scenario():
        pieces = Pieces()
        for number in range(PIECES_OPEN_MAX):
            put(pieces, 0, b"a", 2, f"c-{number}")
        with pytest.raises(Overloaded):
            put(pieces, 0, b"a", 2, "one more")
        monkeypatch.setattr("supervisor.api.transfer.PIECES_IDLE_S", -1.0)
        await asyncio.sleep(0)
        put(pieces, 0, b"a", 2, "one more")
        return len(pieces._coming)

    assert play(scenario) == 1
