"""What is looked at when a session rests, beyond its books."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cmdc_runtime import events
from cmdc_runtime.client.session import AsyncSession
from cmdc_runtime.events import Envelope
from cmdc_runtime.messages import Message
from cmdc_runtime.reasons import Down
from scripts.soak.history import entries_heard, problems_of
from scripts.soak.ledger import Ledger, digest
from scripts.soak.model import strays
from scripts.soak.tools import keys_changed, twice_done
from scripts.soak.wrongs import Problem, Wrong

READ_S: Final = 60.0
"""For all events of a session to be read once more."""


def conversation_problems(
    messages: Sequence[Message], ledger: Ledger, texts: Mapping[str, str]
) -> list[Problem]:
    """Return what is wrong with a conversation; ``texts`` are accepted prompts, by command."""
    found = [
        Problem(Wrong.HISTORY, one)
        for one in problems_of(entries_heard(messages), is_request=False)
    ]
    if ledger.counts["conversation_compacted"]:
        return found  # what was summed up is not there any more
    said = [message.content for message in messages if message.role == "user"]
    found += [
        Problem(Wrong.PROMPT, f"prompt {command} is {said.count(text)} times in the conversation")
        for command, text in texts.items()
        if ledger.has_started(command) and said.count(text) != 1
    ]
    found += [
        Problem(Wrong.HISTORY, f"the model has not read what a plugin said: {text!r}")
        for text in ledger.notes
        if not any(text in one for one in said)
    ]
    found += [
        Problem(Wrong.HISTORY, f"answer {one} is another prompt's") for one in strays(messages)
    ]
    return found + [Problem(Wrong.HISTORY, one) for one in answers_missing(messages, ledger.said)]


def end_problems(downs: Sequence[Down], first: int, last: int) -> list[Problem]:
    """Return what is wrong with the ends of a session's processes that a monitor got.

    They are those of the incarnations ``first`` to ``last``, of which the last one is final; it may
    be set later than ``first`` where that is 0.
    """
    ended = [int(down.incarnation) for down in downs]
    begin = first or min(ended, default=last)
    right = list(range(begin, last + 1))
    found = [] if ended == right else [f"ends of {ended} were reported in place of {right}"]
    found += [
        f"the end of incarnation {down.incarnation} says restarting={down.restarting}"
        for down in downs
        if down.restarting == (down.incarnation == last)
    ]
    return [Problem(Wrong.END, one) for one in found]


def answers_missing(messages: Iterable[Message], said: Sequence[Message]) -> list[str]:
    """Return the answers that observers got and the conversation does not have."""
    known = {message.id: message for message in messages}
    return [
        f"answer {answer.id} is not in the conversation as it was published"
        for answer in said
        if known.get(answer.id) != answer
    ]


def effect_problems(folder: Path) -> list[Problem]:
    """Return what the effects in a session's folder say of its tools."""
    found = [Problem(Wrong.WRITE, f"effect {one} happened twice") for one in twice_done(folder)]
    changed = (f"call {one} ran again under another key" for one in keys_changed(folder))
    return found + [Problem(Wrong.WRITE, one) for one in changed]


async def late_reading(session: AsyncSession, ledger: Ledger, last: int) -> list[Problem]:
    """Read events up to ``last`` once more and return where they differ from what was heard."""
    reader = _Reader(ledger)
    try:
        async with asyncio.timeout(READ_S), await session.subscribe(since=0) as stream:
            while reader.last < last:
                reader.read(await stream.get())
    except TimeoutError:
        reader.problems.append(f"late reader: at index {reader.last} of {last} after {READ_S:g} s")
    return [Problem(Wrong.INDEX, one) for one in reader.problems]


class _Reader:
    """Reads behind the books: short-lived events may be gone, durable ones are all there."""

    def __init__(self, ledger: Ledger) -> None:
        self.problems: list[str] = []
        self.last = 0
        self._digests = ledger.digests

    def read(self, envelope: Envelope) -> None:
        """Compare one event."""
        event, first = envelope.event, self.last + 1
        self.last = envelope.index
        if isinstance(event, events.EventsLost):
            self._lose(event, first)
        elif envelope.index != first:
            self.problems.append(f"late reader: index {envelope.index} in place of {first}")
        elif event.durable and self._digests.get(envelope.index) != digest(event):
            self.problems.append(f"late reader: another event at index {envelope.index}")

    def _lose(self, event: events.EventsLost, first: int) -> None:
        lost = [index for index in self._digests if event.first <= index <= event.last]
        if event.first != first or lost:
            self.problems.append(
                f"late reader: {event.first} to {event.last} lost in place of {first},"
                f" {len(lost)} durable ones among them"
            )
