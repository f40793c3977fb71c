"""A plugin that writes every cycle into a SQLite database, and keeps nobody waiting for the disk.

``after_turn`` hands a row to a thread and returns. Rows that are not yet written stand in the
plugin's ``State``, which outlives a crash, and a row written twice is one row.
It runs as it is, with a model that plays a script; CMDC_MODEL=openai:gpt-4o-mini names a real one.

python examples/plugins/06_turn_auditor.py
"""

import os
import queue
import sqlite3
import tempfile
import threading
from contextlib import closing
from typing import Any

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel

ROWS_MAX = 100  # not yet written; beyond it, observers hear that the auditor failed
TEXT_CHARS_MAX = 1_000  # of what a row remembers: all of the state together is 1 MiB at most
DISK_S = 20.0
COLUMNS = "session, ended_at_ms, user, outcome, tokens, duration_ms, said, answered"
TABLE = f"CREATE TABLE IF NOT EXISTS turns ({COLUMNS}, PRIMARY KEY (session, ended_at_ms))"
ADD = f"INSERT OR IGNORE INTO turns VALUES ({', '.join('?' * len(COLUMNS.split(',')))})"
Row = tuple[Any, ...]  # Any: one of each column


class Writer:
    """A thread with the database; ``written`` is when the last cycle that it wrote had ended."""

    def __init__(self, database: str) -> None:
        """Start it."""
        self.rows: queue.Queue[Row | None] = queue.Queue(ROWS_MAX)
        self.written = 0
        self.thread = threading.Thread(target=self._write, args=(database,), daemon=True)
        self.thread.start()

    def _write(self, database: str) -> None:
        with closing(sqlite3.connect(database, timeout=DISK_S)) as connection:
            connection.execute(TABLE)
            for row in iter(self.rows.get, None):
                with connection:  # one transaction
                    connection.execute(ADD, row)
                self.written = row[1]


class TurnAuditor(cmdc.Plugin):
    """Remembers for good what was asked, what came of it, and what it took."""

    priority = 950  # behind all others

    class Config(msgspec.Struct, frozen=True):
        """The file of the database."""

        database: str

    class State(msgspec.Struct):
        """Rows that were not seen to be written."""

        pending: list[Row] = []

    def session_start(self, _event: cmdc.SessionStart, _context: cmdc.PluginContext) -> None:
        """Begin with what an earlier process left."""
        self.writer = Writer(self.config.database)
        for row in self.state.pending:
            self.writer.rows.put(row, timeout=DISK_S)

    def after_turn(self, event: cmdc.AfterTurn, context: cmdc.PluginContext) -> None:
        """Hand over one row."""
        said = [message.content for message in event.messages_diff if message.role == "user"]
        answered = event.messages_diff[-1].content if event.messages_diff else ""
        row = (context.session_id, event.ended_at_ms, context.user_data.get("user_id"),
               event.outcome, event.token_usage_diff.total_tokens, event.duration_ms,
               "\n".join(said)[:TEXT_CHARS_MAX], answered[:TEXT_CHARS_MAX])  # fmt: skip
        self.writer.rows.put_nowait(row)
        kept = [one for one in self.state.pending if one[1] > self.writer.written]
        self.state.pending = [*kept, row]

    def session_end(self, _event: cmdc.SessionEnd, _context: cmdc.PluginContext) -> None:
        """Let the thread write the rest."""
        self.writer.rows.put(None, timeout=DISK_S)
        self.writer.thread.join(DISK_S)
        if self.writer.thread.is_alive():
            raise TimeoutError(f"the last rows are not written after {DISK_S:g} s")


SCRIPT = ScriptedModel(["Hello, Ada.", "You are Ada."])

with SCRIPT, tempfile.TemporaryDirectory() as folder:
    with cmdc.create_agent(
        model=os.environ.get("CMDC_MODEL") or SCRIPT,
        plugins=[(TurnAuditor, {"database": f"{folder}/turns.db"})],
        user_data={"user_id": "ada"},
    ) as session:
        session.run("I am Ada.")
        session.run("Who am I?")
    with closing(sqlite3.connect(f"{folder}/turns.db")) as connection:
        for row in connection.execute("SELECT user, outcome, said, answered FROM turns"):
            print(*row, sep=" | ")
