"""Page faults are read where the kernel writes them."""

import os
import resource

import pytest

from benchmarks.bench_faults import faults_in, minor_faults


@pytest.mark.parametrize("name", ["python", "a b", "a) S 1", ")"])
def test_faults_stand_behind_the_name_whatever_it_is(name):
    """The tenth field of the file, as proc(5) counts."""
    assert faults_in(f"42 ({name}) S 1 42 42 0 -1 4194304 1234 99 5 6 7 8\n") == 1234


def test_faults_are_those_that_the_kernel_reports_to_the_process_itself():
    """By getrusage, just before and just after."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found = minor_faults(os.getpid())
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    assert before <= found <= after
