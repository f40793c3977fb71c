"""Every bound of the daemon, each with its unit in the name and its reason beside it.

A bound that a person may choose is a field of ``config.DaemonConfig`` and has its default there.
To add one, add a constant below the part that it belongs to, and a test that reaches it.
"""

from typing import Final

# Journal: callers -> writer thread -> file.
JOURNAL_QUEUED_MAX: Final = 10_000
"""Operations on their way; at 20 us each the last one waits for about 0.2 s."""
JOURNAL_QUEUED_BYTES_MAX: Final = 64 * 2**20
"""Bodies on their way; a frame has at most 1 MiB, so a few large ones do not fill it."""
JOURNAL_GROUP_MAX: Final = 256
"""Operations that share one transaction; beyond it the fixed cost of a commit is small."""
JOURNAL_LOCK_WAIT_S: Final = 1.0
"""For another process to let go of the file; the kernel does it at once for a dead one."""
JOURNAL_CLOSE_S: Final = 10.0
"""For the writer to store what is queued; a full queue takes it less than 1 s."""
JOURNAL_WAL_BYTES_MAX: Final = 64 * 2**20
"""What SQLite leaves of its write-ahead log after a checkpoint; a burst may exceed it."""
REPLAY_BATCHES_MAX: Final = 1_000
"""Event batches in one answer of the journal: bounds the answer and the writer's pause."""

# Runtime directory.
LOCK_TRIES_MAX: Final = 20
"""A prober holds the lock for microseconds; only a daemon holds it through all tries."""
LOCK_RETRY_S: Final = 0.01
"""Between two tries."""

# Clients.
COMMANDS_PENDING_MAX: Final = 2_000
"""Commands of one session that wait for its answer; the next one is refused as Overloaded."""
MONITORS_MAX: Final = 100_000
"""Monitors of all clients; one costs about 0.5 kB."""
REPLAY_BYTES_MAX: Final = 4 * 2**20
"""Of one answer to Replay; the client asks again for the rest."""
REASONS_KEPT_MAX: Final = 10_000
"""Ended sessions whose last reason is answered from memory; older ones come from the journal."""

# Workers.
HISTORY_BYTES_MAX: Final = 2**20
"""Of one History frame; a longer history takes several."""
HISTORY_ITEMS_MAX: Final = 5_000
"""Records and commands of one History frame."""
SPARE_PAUSE_S: Final = 0.05
"""Between a spare's leaving and the fork of the next one: the new agent starts undisturbed."""
SPARE_RETRY_S: Final = 1.0
"""Before spares are forked again after a fork failed."""
HANDSHAKE_S: Final = 10.0
"""For a forked worker to say that it is ready."""
HOST_END_S: Final = 5.0
"""For a killed tool host, and all that ran in it, to be gone before its agent is replaced."""
LAST_FRAMES_S: Final = 0.25
"""For what a dead worker had sent to be read, before its end is told."""
LAST_FRAMES_LOOK_S: Final = 0.0005
"""Between two looks whether all of it was read."""
STOP_ALL_S: Final = 10.0
"""For all sessions to end when the daemon does."""
STOP_TIMEOUT_S_MAX: Final = 3_600.0
"""The longest grace that a caller of stop may ask for."""

# Hub.
RING_BYTES_MAX: Final = 8 * 2**20
"""Of one session's ring, however many events its options allow."""
WATERMARK_S: Final = 0.5
"""Between two watermarks of a session whose events still come."""
WATERMARKS_AFTER: Final = 3
"""Watermarks after a session's last event: enough for a lost tail to be noticed."""
INDEX_JUMP: Final = 1_000_000
"""Indexes skipped when a new daemon takes a session over: more than the ephemeral events that may
have been published after its last durable one."""
CHANNELS_ENDED_MAX: Final = 256
"""Ended sessions whose ring is still there for late readers."""
GROUPS_KNOWN_MAX: Final = 10_000
"""Groups whose newest number is remembered; a follower of a forgotten one looks through the list of
sessions once more than needed."""
NURSERY_RETRY_S: Final = 2.0
"""Before a nursery that did not get warm is started again."""
