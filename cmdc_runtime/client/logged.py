"""What a client writes to the log of the program that it is part of, by the standard library.

Its message says all: a program that has set up no logging sees it on standard error, and nothing
else of a record. The fields are attributes of the record too, for whoever makes JSON of it.
"""

import logging
from typing import Any, Final

_SELF_AND_CALLER: Final = 3


class ClientLog:
    """The log of one module; each field of an event is said as ``name=value``."""

    def __init__(self, name: str) -> None:
        """Write by the logger of this name."""
        self._logger = logging.getLogger(name)

    def warning(self, event: str, **fields: Any) -> None:  # Any: whatever is said of it
        """Say what the program can cope with."""
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, *, cause: BaseException | None = None, **fields: Any) -> None:
        """Say what a person has to look at, with the traceback of ``cause`` (Any: as above)."""
        self._write(logging.ERROR, event, cause, fields)

    def _write(
        self,
        level: int,
        event: str,
        cause: BaseException | None,
        fields: dict[str, Any],  # Any: as above
    ) -> None:
        said = ", ".join(f"{name}={value}" for name, value in fields.items())
        text = f"{event}: {said}"  # the logger puts nothing into it: a value may have a %
        self._logger.log(level, text, extra=fields, exc_info=cause, stacklevel=_SELF_AND_CALLER)
