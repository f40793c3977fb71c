"""Decides with which write of an agent its whole state goes to the journal."""

from collections.abc import Sequence

import structlog

from cmdc_runtime.wire.frames import JournalRecord
from workers.core.snapshot import SNAPSHOT_BYTES_MAX, Unsaved, encode
from workers.core.step import Step

log = structlog.get_logger()


class Saver:
    """What an agent has recorded since its newest snapshot."""

    def __init__(self, unsaved: Unsaved | None = None) -> None:
        """Go on from what the journal gave."""
        self._unsaved = unsaved or Unsaved()

    def snapshot(self, step: Step, records: Sequence[JournalRecord]) -> bytes:
        """Return what goes with the ``records`` of ``step``: the state after it, or b"".

        A state that is too large for a frame is left out, and tried again when the records have
        grown by as much as makes another one worth it.
        """
        size = sum(len(record.body) for record in records)
        self._unsaved = self._unsaved.after(len(records), size)
        if not self._unsaved.is_due(step.memory):
            return b""
        snapshot = encode(step.memory)
        self._unsaved = Unsaved(newest=len(snapshot))
        if len(snapshot) + size > SNAPSHOT_BYTES_MAX:
            log.info("snapshot.left_out", bytes=len(snapshot), bytes_max=SNAPSHOT_BYTES_MAX)
            return b""
        return snapshot
