"""The options of the event log."""

import re
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

LINE_BYTES_MAX: Final = 65_536
"""Of one line of the log; what an event has beyond it is cut, and the line says so."""
SESSION_PLACEHOLDER: Final = "{session_id}"
"""What stands in a path for the id of the session."""
_BRACED: Final = re.compile(r"\{[^{}]*\}")

_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class EventLogger(BuiltInPlugin, frozen=True, kw_only=True):
    """Writes what the session does into a file, one JSON object a line.

    Its keys are ``ts`` (ISO 8601, milliseconds, UTC), ``session``, ``event``, ``data``, ``level``
    and ``turn``. The file is for its owner's eyes alone: it and the folders that are made for it
    are closed to others. Lines are written a little after their events, so the last ones of a
    process that is killed may be missing. A file that cannot be written any more harms no session:
    a warning says so, and the log ends there until the session has its next process.
    """

    short_name: ClassVar[str] = "event_logger"
    level: Literal["debug", "info", "warning", "warn"] = "info"
    """The least level that is written ("warn" is "warning"); pieces of answers are "debug"."""
    log_dir: _Path | None = None
    """The folder of ``{session_id}.jsonl``; None is ``.cmdc/logs`` in the session's working
    folder, to which a relative path is relative. ``~`` is the home of who runs the daemon."""
    log_file: _Path | None = None
    """The file itself, in place of one in ``log_dir``. Sessions may share it; ``{session_id}`` in
    it, or in ``log_dir``, is the id of the session."""
    include_args: bool = True
    """False leaves out what people, the model and tools say: prompts, answers, the arguments and
    results of tools, and what plugins emit."""
    max_bytes: Annotated[int, Meta(ge=LINE_BYTES_MAX, le=2**40)] = 50_000_000
    """The size at which the file becomes ``<file>.1``, and that one ``<file>.2``."""
    backups: Annotated[int, Meta(ge=0, le=100)] = 3
    """How many such older files are kept; 0 throws a full file away."""

    def __post_init__(self) -> None:
        """Check the paths.

        Raises:
            ValueError: a path has a placeholder that means nothing.
        """
        for option in ("log_dir", "log_file"):
            for braced in _BRACED.findall(getattr(self, option) or ""):
                if braced != SESSION_PLACEHOLDER:
                    raise ValueError(
                        f"{option} has {braced!r}: the one placeholder is {SESSION_PLACEHOLDER!r}"
                    )
