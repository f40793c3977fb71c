"""Runs a session's guardrails, all of one side at once; the first that trips is what counts.

They are foreign code: sync code has a thread of its own, and each has ``GUARDRAIL_S`` seconds. One
that raises, takes longer or returns what is none has tripped: who guards must not fail in silence.
What a request brings meanwhile is held back by ``Held``, which ``ModelCaller`` bounds.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from cmdc_runtime import foreign, plain
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.guardrail import Tripwire
from cmdc_runtime.ids import SessionId
from workers.core.inputs import FirstChunk, Result, StreamSilent, Tripped
from workers.threads import Threads

GUARDRAIL_S: Final = 30.0
"""For one guardrail to decide: it may ask a model, and a person waits."""
REASON_CHARS_MAX: Final = 4_000
"""Of why one has tripped, as it is recorded and published."""

Guardrail: TypeAlias = tuple[str, Callable[[str, PluginContext], Any]]  # Any: None, str, Tripwire
"""A guardrail with the name that it is reported by."""


class Held:
    """Keeps what a request brings until the guardrails have passed, then hands it on in order."""

    def __init__(self, post: Callable[[Result], None]) -> None:
        """Hand on to ``post``."""
        self._post = post
        self._kept: list[Result] = []
        self._is_open = False

    def post(self, result: Result) -> None:
        """Take a result; what shows nothing of the answer goes on at once."""
        if self._is_open or isinstance(result, FirstChunk | StreamSilent):
            self._post(result)
        else:
            self._kept.append(result)

    def open(self) -> None:
        """Hand on what was kept, and all that comes."""
        self._is_open = True
        kept, self._kept = self._kept, []
        for result in kept:
            self._post(result)


class Guardrails:
    """The guardrails of one side of a session: of what is asked, or of what is answered."""

    def __init__(self, functions: Sequence[Guardrail]) -> None:
        """Ask these."""
        self._functions = functions
        self._threads = Threads("guardrail")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._functions)

    async def check(self, text: str, context: PluginContext) -> Tripped | None:
        """Return what the first of them says that trips, None where all of them pass."""
        tasks = [
            asyncio.create_task(self._one(name, partial(decide, text, context)), name="guardrail")
            for name, decide in self._functions
        ]
        try:
            for done in asyncio.as_completed(tasks):
                if (tripped := await done) is not None:
                    return tripped
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return None

    async def _one(self, name: str, decide: Callable[[], Any]) -> Tripped | None:
        try:
            async with asyncio.timeout(GUARDRAIL_S):
                return _tripped(name, await self._returned(decide))
        except TimeoutError:
            return Tripped(name, f"it took longer than {GUARDRAIL_S:g} s")
        except ForeignError as error:
            why = f"it failed: {foreign.summary_of(error.error)}"
            return Tripped(name, plain.shown(why, REASON_CHARS_MAX))

    async def _returned(self, decide: Callable[[], Any]) -> object:
        if inspect.iscoroutinefunction(decide):
            return await foreign.wait(decide)
        found = await self._threads.run(decide)
        return await foreign.wait(lambda: found) if inspect.isawaitable(found) else found


def _tripped(name: str, returned: object) -> Tripped | None:
    """Return what a guardrail has said, None where it passes."""
    if returned is None:
        return None
    said = Tripwire(returned) if isinstance(returned, str) else returned
    if not isinstance(said, Tripwire) or not isinstance(said.reason, str):
        why = f"it returned {plain.short(returned)}; expected None, a str or a cmdc.Tripwire"
        return Tripped(name, why)
    info = said.info if plain.problem_of(said.info) is None else plain.short(said.info)
    return Tripped(name, plain.shown(said.reason, REASON_CHARS_MAX), info)


@dataclass(frozen=True, slots=True)
class Guards:
    """The guardrails of both sides, and what they see of the session."""

    context: Callable[[], PluginContext]
    input: Guardrails = field(default_factory=lambda: Guardrails(()))
    output: Guardrails = field(default_factory=lambda: Guardrails(()))


NO_GUARDS: Final = Guards(lambda: PluginContext(session_id=SessionId("")))
"""Of a session without guardrails."""
