"""A checkpoint backend of your own: each checkpoint is one file of a folder.

CMDC_MODEL=openai:gpt-4o-mini python examples/19_checkpoint_files.py
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import cmdc_runtime as cmdc

Kept = tuple[cmdc.Snapshot, bytes]


class CheckpointFiles(cmdc.CheckpointBackend):
    """Keeps checkpoints in a folder, by their ids, which have no @ in them."""

    def __init__(self, folder: str) -> None:
        """Keep them in ``folder``, which is there."""
        self.folder = folder

    def save(self, snapshot: cmdc.Snapshot, body: bytes) -> None:
        """Write a file that is there as a whole or not at all, and durable on return."""
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as fresh:
            fresh.write(msgspec.msgpack.encode((snapshot, body)))
            fresh.flush()
            os.fsync(fresh.fileno())
        Path(fresh.name).replace(f"{self.folder}/{snapshot.session_id}@{snapshot.checkpoint_id}")
        os.fsync(folder := os.open(self.folder, os.O_RDONLY))  # its name is on the disk, too
        os.close(folder)

    def load(self, session_id: str, checkpoint_id: str | None) -> Kept | None:
        """Return one, or the newest."""
        found = self._read(session_id, checkpoint_id)
        return max(found, key=lambda one: one[0].saved_at_ms, default=None)

    def list(self, session_id: str) -> Iterator[cmdc.Snapshot]:
        """Yield all of a session."""
        return (snapshot for snapshot, _ in self._read(session_id, None))

    def delete(self, session_id: str, checkpoint_id: str | None) -> None:
        """Delete one, or all of a session."""
        for file in Path(self.folder).glob(f"{session_id}@{checkpoint_id or '*'}"):
            file.unlink(missing_ok=True)

    def _read(self, session_id: str, checkpoint_id: str | None) -> Iterator[Kept]:
        for file in Path(self.folder).glob(f"{session_id}@{checkpoint_id or '*'}"):
            yield msgspec.msgpack.decode(file.read_bytes(), type=Kept)


if __name__ == "__main__":
    files = CheckpointFiles(tempfile.mkdtemp())
    with cmdc.create_agent(model=os.environ["CMDC_MODEL"], checkpoint_backend=files) as session:
        session.run("My name is Ann.")
        session.checkpoint(label="she has a name")
    print(f"{files.folder} has", *(repr(one.label) for one in files.list(session.id)))
