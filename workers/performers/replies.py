"""Answers the questions of clients: at once, by a performer that took a while, or page by page."""

import time
from collections.abc import Callable

from cmdc_runtime.commands import Status
from cmdc_runtime.messages import Message
from cmdc_runtime.pages import Pages
from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import Answer as AnswerFrame
from cmdc_runtime.wire.frames import Refusal
from workers.core.evolve import patched
from workers.core.state import Memory
from workers.core.step import Answer, AnswerMessages, AnswerPage, AnswerStatus, Refuse
from workers.link import Link
from workers.performers.publish import Publisher


class Replies:
    """Sends the answers of one session; pages of a large one are kept for whoever reads it."""

    def __init__(
        self,
        link: Link,
        publisher: Publisher,
        status: Callable[[], Status],
    ) -> None:
        """Send by ``link``; ``status`` returns how the session stands."""
        self._link = link
        self._publisher = publisher
        self._status = status
        self._pages = Pages(time.monotonic, encode)

    def reply(self, effect: Answer | Refuse) -> None:
        """Answer a question that took a while."""
        if isinstance(effect, Answer):
            self.answer(effect)
        else:
            self.refuse(effect)

    def answer(self, effect: Answer) -> None:
        """Send an answer, or the first page of it."""
        # Who has an answer may ask for the events from then on: they must not be older than it.
        self._publisher.flush()
        body, page_id = self._pages.first(effect.value)
        self._link.send(AnswerFrame(id=effect.id, body=body, page_id=page_id))

    def refuse(self, effect: Refuse) -> None:
        """Send an error as the answer."""
        error = effect.error
        self._link.send(
            Refusal(
                id=effect.id, code=error.code, message=str(error), details=encode(error.details())
            )
        )

    def answer_status(self, effect: AnswerStatus) -> None:
        """Send how the session stands."""
        self._publisher.flush()
        self._link.send(AnswerFrame(id=effect.id, body=encode(self._status())))

    def answer_messages(self, effect: AnswerMessages, system: Message, memory: Memory) -> None:
        """Send the conversation, the system message first unless it is empty."""
        first = (system,) if system.content else ()
        self.answer(Answer(effect.id, (*first, *patched(memory))))

    def answer_page(self, effect: AnswerPage) -> None:
        """Send the page that follows."""
        self.answer(Answer(effect.id, self._pages.after(effect.page_id, effect.offset)))
