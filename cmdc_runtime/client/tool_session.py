"""``context.session`` of a tool that runs in the program that has attached it.

A call there has no session at hand: what it could ask of one is the affair of the session's own
process. Whatever it asks for is refused by name, with what can be done instead.
"""

from typing import Final, cast

from cmdc_runtime.extensions.context import SessionPort
from cmdc_runtime.extensions.tool import ToolError


class NotHereError(ToolError, AttributeError):
    """What a call asked of its session is not to be had in this process."""


class _SessionElsewhere:
    """Has nothing, and says so; ``hasattr`` is False of each name."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # what copies and inspectors look for
            raise AttributeError(name)
        raise NotHereError(
            f'{name} is not to be had in a tool with where="client", which runs in the program '
            "that has attached it: an async def tool without where has it; or return what your "
            "program needs to know, and have it act by its session"
        )


# It stands in for every method of the protocol, and has none.
SESSION_ELSEWHERE: Final = cast("SessionPort", _SessionElsewhere())
