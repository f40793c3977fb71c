"""Checkpoint backends that a session is given by name."""

import cmdc_runtime as cmdc


class AsyncKept(cmdc.CheckpointBackend):
    """Keeps checkpoints in the memory of its process."""

    def __init__(self):
        self.kept = {}

    async def save(self, snapshot, body):
        self.kept[snapshot.checkpoint_id] = (snapshot, body)

    async def load(self, session_id, checkpoint_id):
        kept = [one for one in self.kept.values() if one[0].session_id == session_id]
        return self.kept.get(checkpoint_id) if checkpoint_id else max(kept, default=None)

    async def list(self, session_id):
        return [one for one, _ in self.kept.values() if one.session_id == session_id]

    async def delete(self, session_id, checkpoint_id):
        self.kept.pop(checkpoint_id, None)


class Unmade(AsyncKept):
    """Cannot be made."""

    def __init__(self):
        raise OSError("no database")
