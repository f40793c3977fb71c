"""Log lines of a process that ends or forks: all of them are written, and each once."""

import subprocess
import sys

import msgspec
import pytest

pytestmark = pytest.mark.process

WAIT_S = 20.0
BEGIN = """
import os, sys, structlog
from supervisor.logs import configure_logs, flush_logs
configure_logs("info", "json")
log = structlog.get_logger()
for number in range(500):
    log.info("line.logged", number=number, text="x" * 1_000)
"""


def run(script, **options):
    line = [sys.executable, "-c", BEGIN + script]
    return subprocess.run(line, timeout=WAIT_S, check=False, text=True, **options)


def numbers(text):
    lines = [msgspec.json.decode(line) for line in text.splitlines() if line.startswith("{")]
    return [line["number"] for line in lines]


@pytest.mark.parametrize(
    ("script", "status", "last"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('broken')", 1, "\nValueError: broken\n"),
        ("flush_logs(9); log.info('line.logged', number=500); os._exit(not flush_logs(9))", 0, ""),
    ],
)
def test_a_process_that_ends_has_written_its_lines(script, status, last):
    """A return, an exit and a crash lose nothing; a flush may come before more lines."""
    ended = run(script, stderr=subprocess.PIPE)

    assert ended.returncode == status
    assert numbers(ended.stderr)[:500] == list(range(500))
    assert ended.stderr.endswith(last)
    assert len(numbers(ended.stderr)) == (501 if "number=500" in script else 500)


def test_a_process_ends_although_nobody_reads_its_log():
    """A reader that stands still costs the bound of a flush, and one that is gone nothing."""
    script = "import atexit; atexit.unregister(flush_logs); atexit.register(flush_logs, 0.2)"
    line = [sys.executable, "-c", BEGIN + script]
    with subprocess.Popen(line, stderr=subprocess.PIPE) as process:
        assert process.wait(WAIT_S) == 0


def test_a_forked_child_writes_its_own_lines_and_no_others():
    """The parent's thread, locks and queue are not the child's."""
    script = """
pid = os.fork()
if pid == 0:
    log.info("line.logged", number=-1)
    os._exit(not flush_logs(9))
assert os.waitpid(pid, 0)[1] == 0
log.info("line.logged", number=-2)
"""
    ended = run(script, stderr=subprocess.PIPE)

    assert ended.returncode == 0
    assert sorted(numbers(ended.stderr)) == [-2, -1, *range(500)]
