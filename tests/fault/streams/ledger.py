"""What a client has seen of one session, to be held against what the journal has."""

import asyncio

import msgspec

from cmdc_runtime.events import EventsLost
from cmdc_runtime.wire.codec import decode_events, encode
from supervisor.adapters.journal.operations import FindLastIndex, ReplayEvents
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.core.limits import REPLAY_BATCHES_MAX

WAIT_S = 60.0


class Log:
    """The envelopes of one session in the order in which a stream gave them."""

    def __init__(self):
        self.events = {}  # index -> (at_ms, event)
        self.lost = []  # (first, last)
        self.last = 0

    def add(self, envelope):
        """Take the next envelope, which has to follow the one before."""
        event = envelope.event
        if isinstance(event, EventsLost):
            assert event.first == self.last + 1, f"{event} follows {self.last}"
            assert envelope.index == event.last
            self.lost.append((event.first, event.last))
        else:
            assert envelope.index == self.last + 1, f"{envelope.index} follows {self.last}"
            self.events[envelope.index] = (envelope.at_ms, event)
        self.last = envelope.index

    def read(self, stream, last):
        """Take what a stream gives, up to the event of index ``last``."""
        while self.last < last:
            self.add(stream.get(WAIT_S))
        return self

    @property
    def durable(self):
        """The events that the journal keeps."""
        return {index: one for index, one in self.events.items() if one[1].durable}

    @property
    def lost_count(self):
        return sum(last - first + 1 for first, last in self.lost)


def journaled(state_dir, *session_ids):
    """Return the events of sessions as the journal of a daemon that is not there has them."""

    async def main():
        journal = SqliteJournal(state_dir, durability="process")
        await journal.open()
        try:
            return [await _all_of(journal, session_id) for session_id in session_ids]
        finally:
            await journal.close()

    return asyncio.run(main())


async def _all_of(journal, session_id):
    found, last = {}, await journal.read(FindLastIndex(session_id))
    after = 0
    while after < last:
        rows = await journal.read(ReplayEvents(session_id, after, last, REPLAY_BATCHES_MAX))
        for row in rows:
            found |= dict(enumerate(decode_events(row.body), row.first))
        after = rows[-1].first + rows[-1].count - 1
    return found


def digest(events):
    """Return events in a form that compares fast and shows the difference."""
    return {
        index: (at_ms, encode(msgspec.to_builtins(event)))
        for index, (at_ms, event) in events.items()
    }
