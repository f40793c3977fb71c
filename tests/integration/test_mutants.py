"""A wrong that is planted harms nothing, is noticed by the test that sees it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import sandbox
from scripts.mutants.place import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

LIMIT_S = 60.0


def apart(folder, work, limit_s=LIMIT_S):
    """Return the exit status of what was done in a place of its own."""
    return sandbox.status_of(os.waitpid(sandbox.start_apart([folder], work, limit_s), 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="another user has no rights to take away")
@pytest.mark.parametrize("place", [os.devnull, "/etc/hostname", __file__])
def test_what_a_wrong_removes_is_there_afterwards(tmp_path, place):
    """The one folder is all that it can write to."""
    note = tmp_path / "note"

    def remove():
        note.write_text("mine")
        try:
            note.replace(place)
        except OSError:
            return 7
        return 0

    before = Path(place).stat()

    assert apart(tmp_path, remove) == 7
    assert Path(place).stat() == before
    assert note.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user gets no namespace")
def test_what_a_wrong_leaves_behind_is_ended(tmp_path):
    """A process that has left its group and its parent, too; it holds the end of this pipe."""
    reader, writer = os.pipe()

    def leave():
        command = [sys.executable, "-c", "import time; time.sleep(1000)"]  # tidy: what is left
        subprocess.Popen(command, start_new_session=True, pass_fds=[writer])
        return 3

    status = apart(tmp_path, leave)
    os.close(writer)

    assert status == 3
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_wrong_that_hangs_is_cut_off(tmp_path):
    """So is one that ends by a signal, reported as a shell does it."""

    def hang():
        os.read(os.pipe()[0], 1)

    def fall():
        os.kill(os.getpid(), signal.SIGKILL)

    assert apart(tmp_path, hang, limit_s=0.2) == sandbox.TIMED_OUT
    assert apart(tmp_path, fall) == 128 + signal.SIGKILL


SCRIPT = """
import json
from pathlib import Path
from scripts.mutants.belongs import Module
from scripts.mutants.operators import mutants_of
from scripts.mutants.run import Bench
bench, found = Bench(), []
for name in ("self_check_status", "ring"):
    tests = f"tests/unit/supervisor/core/test_{name}.py"
    module = Module("supervisor/core/self_check.py", (tests,), ())
    mutants = list(mutants_of(Path(module.file).read_text(encoding="utf-8")))
    wrong = [one for one in mutants if one.name == "_counted: 1 as 2"]
    found.append([verdict.by for verdict in bench.judge(module, wrong)])
print(json.dumps(found))
"""


def test_what_tests_see_is_killed_and_what_they_do_not_see_lives():
    """The test that noticed is named; where none runs the wrong function, it lives."""
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (by,), lives = json.loads(done.stdout)

    assert by.startswith("tests/unit/supervisor/core/test_self_check_status.py::")
    assert lives == [""]
