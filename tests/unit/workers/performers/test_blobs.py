"""The bytes of images on their way into a request: the newest that fit, read once."""

import asyncio
import hashlib

import pytest

from cmdc_runtime.errors import DaemonUnavailable
from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import BlobFound, GetBlob
from workers.performers import blobs
from workers.performers.blobs import BlobProvider, Blobs


def part(body):
    """Return the part of some bytes."""
    digest = hashlib.sha256(body).hexdigest()
    return MessagePart(media_type="image/png", digest=digest, size=len(body))


def request(*bodies):
    """Return a request with a message for each of ``bodies``."""
    said = tuple(Message(role="user", content="", parts=(part(body),)) for body in bodies)
    return ModelRequest(model="m", messages=said)


class Journal:
    """Has bytes by their digests, and counts the questions."""

    def __init__(self, *bodies):
        self.kept = {part(body).digest: body for body in bodies}
        self.asked = []

    async def ask(self, question):
        assert isinstance(question, GetBlob)
        assert question.session_id == "s"
        self.asked.append(question.digest)
        return BlobFound(body=self.kept.get(question.digest))


def filled(reader, wanted):
    return set(asyncio.run(reader.filled(wanted)).blobs.values())


def test_bytes_are_read_once():
    """The next request has them from memory."""
    journal = Journal(b"one", b"two")
    reader = Blobs("s", journal.ask)

    assert filled(reader, request(b"one", b"two", b"one")) == {b"one", b"two"}
    assert filled(reader, request(b"one", b"two")) == {b"one", b"two"}
    assert len(journal.asked) == 2


def test_the_newest_go_where_all_are_too_much(monkeypatch):
    """And no more than so many bytes stay in memory."""
    monkeypatch.setattr(blobs, "SENT_BYTES_MAX", 8)
    monkeypatch.setattr(blobs, "KEPT_BYTES_MAX", 4)
    journal = Journal(b"old", b"older", b"new", b"last")
    reader = Blobs("s", journal.ask)

    assert filled(reader, request(b"older", b"old", b"new", b"last")) == {b"new", b"last"}
    assert filled(reader, request(b"last")) == {b"last"}
    assert len(journal.asked) == 3


@pytest.mark.parametrize("found", [None, b"other bytes"])
def test_what_is_lost_or_damaged_is_left_out(found):
    """The provider informs the model of it."""
    journal = Journal(b"one")
    journal.kept[part(b"one").digest] = found

    assert filled(Blobs("s", journal.ask), request(b"one")) == set()


def test_a_daemon_that_is_away_is_a_failure_that_passes():
    """The request is made again, as with a provider that is away."""

    async def ask(_question):
        raise DaemonUnavailable("no daemon")

    with pytest.raises(ProviderError, match="could not be read from the journal") as caught:
        asyncio.run(Blobs("s", ask).filled(request(b"one")))

    assert caught.value.kind is FailureKind.TRANSIENT


def test_the_provider_gets_the_bytes():
    """A request without images goes on as it is."""

    class Provider:
        asked: list[ModelRequest] = []  # noqa: RUF012 - of one test

        async def stream(self, given):
            self.asked.append(given)
            yield given.model

    async def ask(wanted):
        reader = BlobProvider(Provider(), Blobs("s", Journal(b"one").ask))
        return [chunk async for chunk in reader.stream(wanted)]

    plain = ModelRequest(model="m", messages=(Message.user("hi"),))
    assert asyncio.run(ask(plain)) == ["m"]
    assert asyncio.run(ask(request(b"one"))) == ["m"]
    assert Provider.asked[0] is plain
    assert list(Provider.asked[1].blobs.values()) == [b"one"]
