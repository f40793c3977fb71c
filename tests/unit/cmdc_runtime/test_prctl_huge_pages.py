"""Huge pages where the kernel has them: asked for in one process, and kept out of another."""

import json
import subprocess
import sys

import pytest

from cmdc_runtime import prctl

WAIT_S = 30.0
PROGRAM = """
import json, re
from cmdc_runtime import prctl

kept = [bytes(100 + n % 7) for n in range(200_000)]

def huge_kib():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"AnonHugePages: *([0-9]+)", file.read())[1])

before = huge_kib()
done, problem = prctl.collapse()
prctl.keep_small()
with open("/proc/self/status") as file:
    is_kept = "THP_enabled:\\t0" in file.read()
prctl.keep_small(is_small=False)
print(json.dumps([before, done, problem, huge_kib(), is_kept, len(kept)]))
"""


def test_the_memory_of_a_process_is_collapsed_where_the_kernel_does_it():
    """What it holds is the same; a kernel that does not is named with its reason."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, timeout=WAIT_S, check=True
    )
    before, size, problem, after_kib, is_kept, count = json.loads(done.stdout)

    assert (before, count) == (0, 200_000)
    assert is_kept
    if prctl.refusal():
        assert (size, problem != "") == (0, True)
    else:
        assert size > 2 * prctl.HUGE_BYTES
        assert (problem, after_kib) == ("", size // 1024)


@pytest.mark.parametrize(
    ("said", "is_eager"),
    [("[always] madvise never", True), ("always [madvise] never", False), (None, False)],
)
def test_a_system_that_makes_them_unasked_is_known(tmp_path, monkeypatch, said, is_eager):
    """By its setting; one without the file has none of them."""
    setting = tmp_path / "enabled"
    if said is not None:
        setting.write_text(said)
    monkeypatch.setattr(prctl, "_SETTING", setting)

    assert prctl.is_eager() is is_eager


def test_a_kernel_that_refuses_is_reported(monkeypatch):
    """As the zygote and the doctor say it."""
    monkeypatch.setattr(prctl, "_COLLAPSE", 12345)

    assert prctl.refusal() == "Invalid argument"
    assert prctl.collapse() == (0, "Invalid argument")
