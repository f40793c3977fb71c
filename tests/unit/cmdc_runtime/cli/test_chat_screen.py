"""What the screen of a chat keeps, and what of an answer it shows while it grows."""

import pytest

pytest.importorskip("prompt_toolkit")

from cmdc_runtime.cli.chat_screen import (
    HISTORY_BYTES_MAX,
    PARTIAL_LINES_MAX,
    Shown,
    history_file,
)


def test_history_is_private_and_bounded(tmp_path):
    """Of one that has grown long the newer half stays, from the beginning of an entry."""
    environ = {"CMDC_STATE_DIR": str(tmp_path / "state")}
    path = history_file(environ, tmp_path)
    entries = "".join(f"\n# 2026-11-28 05:00:00.{at:06}\n+prompt {at}\n" for at in range(60_000))
    path.write_text(entries)
    again = history_file(environ, tmp_path)
    kept = again.read_text()

    assert len(entries) > HISTORY_BYTES_MAX
    assert (again, path.stat().st_mode & 0o777) == (path, 0o600)
    assert HISTORY_BYTES_MAX // 3 < len(kept) <= HISTORY_BYTES_MAX // 2
    assert (kept.lstrip("\n").startswith("# 2026"), kept.endswith("+prompt 59999\n")) == (
        True,
        True,
    )


def test_only_the_end_of_a_long_answer_is_redrawn():
    """However long it is, so many lines stand above the line that is typed in."""
    shown = Shown("s", partial="\n".join(f"line {number}" for number in range(1_000)))
    lines = shown.partial_lines().splitlines()

    assert len(lines) == PARTIAL_LINES_MAX
    assert lines[-1] == "line 999"
    assert Shown("s").partial_lines() == ""


def test_partial_answers_can_not_command_the_terminal():
    """What the model has said so far is made visible signs, as anything of its."""
    assert "\x1b" not in Shown("s", partial="before \x1b[2J after").partial_lines()


def test_the_status_line_has_state_model_tokens_and_cost():
    """A spinner turns while a cycle runs."""
    idle = Shown("s-1", model="openai:m", tokens=12, cost_usd=0.5)
    busy = Shown("s-1", state="executing_tools", tool="shell")

    assert idle.status_line() == "idle · openai:m · 12 tokens · $0.5000 · s-1"
    assert busy.status_line().split(" ", 1)[1].startswith("executing_tools shell")
    assert busy.status_line()[0] != busy.status_line()[0]
