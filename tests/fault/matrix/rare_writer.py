"""``python rare_writer.py FOLDER METHOD``: one write of the journal, with its fault points.

It says "done" when the write is committed, unless a plan has it die before.
"""

import asyncio
import os
import sys
from pathlib import Path

from supervisor.adapters.journal.base import BlobRow, Past, SessionRow
from supervisor.adapters.journal.opening import with_fault_points
from supervisor.adapters.journal.operations import KeepBlob, PruneSessions, RestoreSession
from supervisor.adapters.journal.sqlite import SqliteJournal

NEW = SessionRow(session_id="new", created_ms=1, spec=b"spec")
BLOB = BlobRow("digest", b"body")
END_OF_TIME_MS = 2**60


async def main(folder, method):
    """Open the journal of a folder and write to it."""
    plain = SqliteJournal(Path(folder))
    journal = with_fault_points(plain, ("daemon",), lambda _victim, _session: (os.getpid(),))
    await journal.open()
    writes = {
        "prune": lambda: journal.write(PruneSessions(END_OF_TIME_MS, 10)),
        "restore": lambda: journal.write(
            RestoreSession(Past(row=NEW, snapshot=b"", records=(), commands=()))
        ),
        "keep_blob": lambda: journal.write(KeepBlob("old", BLOB)),
    }
    await writes[method]()
    await journal.close()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
