"""What is known of an end, as lines for people."""

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.cli.follow import evidence_lines
from cmdc_runtime.reasons import Down, Evidence, Normal, OutOfMemory, RestartIntensityExceeded

RAISED = reasons.Exception(type="ValueError", message="no", traceback="Traceback\n  File x\n")
KNOWN = Evidence(
    pid=7,
    status=-9,
    killed_by="kernel",
    lived_ms=200_000,
    state="executing_tools",
    tools=("shell", "read_file"),
    last_index=1042,
    max_rss_bytes=310 * 2**20,
    user_ms=2100,
    system_ms=340,
    oom_kills=1,
    memory_peak_bytes=512 * 2**20,
    output="loading\nloaded\n",
    stack="Fatal Python error: Aborted\n\n  File x",
)
LINES = """\
    it lived for 3 min 20 s, its last event is 1042
    it was executing_tools, with these tools: shell, read_file
    310 MiB resident at most, CPU 2.1 s user, 340 ms system
    all its processes together 512 MiB at most, the kernel killed 1 of them for want of memory
    stack:
    | Fatal Python error: Aborted
    |
    |   File x
    standard error:
    | loading
    | loaded"""


def lines_of(evidence, reason=OutOfMemory()):  # noqa: B008 - it is frozen
    down = Down(
        ref="r",
        session_id="s",
        reason=reason,
        incarnation=2,
        restarting=True,
        evidence=evidence,
    )
    return evidence_lines(down)


def test_all_that_is_known_is_reported():
    """With units, and what the process wrote behind a bar."""
    assert "\n".join(lines_of(KNOWN)) == LINES


@pytest.mark.parametrize(
    ("known", "lines"),
    [
        ({}, []),
        ({"pid": 7, "status": 3}, []),
        ({"tools": ("shell",)}, ["    it was at work, with these tools: shell"]),
        ({"state": "idle"}, ["    it was idle"]),
        ({"last_index": 0}, ["    it published nothing"]),
        ({"system_ms": 0}, ["    CPU 0 ms system"]),
        ({"oom_kills": 2}, ["    the kernel killed 2 of them for want of memory"]),
        ({"output": "\n \n"}, []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_is_not_known_has_no_line(known, lines):
    """No line says that something is missing."""
    assert lines_of(Evidence(**known)) == lines


@pytest.mark.parametrize(
    "reason",
    [RAISED, RestartIntensityExceeded(restarts=3, seconds=5.0, last=RAISED)],
    ids=["raised", "given up"],
)
def test_a_traceback_is_shown_whole(reason):
    """It is in the reason, or in the last of the reasons that were too many."""
    assert lines_of(Evidence(), reason) == [
        "    traceback:",
        "    | Traceback",
        "    |   File x",
    ]


def test_what_a_process_wrote_commands_no_terminal():
    """Nor does it break out of its bar."""
    text = "\x1b[2J\rno line of ours\x9b1m\u202e"
    hostile = Evidence(output=text, stack=text, state=text, tools=(text, "a\nb"))
    lines = lines_of(hostile, reasons.Exception(type="E", message="", traceback=text))

    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("    ") for line in lines)


def test_an_end_without_evidence_has_none():
    """Notices of an older daemon have none."""
    assert lines_of(Evidence(), Normal()) == []
