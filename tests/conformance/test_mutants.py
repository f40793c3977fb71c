"""The real half can fail: with a bug planted in the daemon's code, its cases do."""

import inspect
from pathlib import Path

import pytest

from tests.conformance.mutants import MUTANTS

FOLDER = Path(__file__).parent
REST_S = 2.0
"""For processes to come to rest where a bug may keep them from it."""


def play(test, stage, given):
    """Play a case on a stage, and close that."""
    try:
        test(stage, *given)
    finally:
        stage.close()


@pytest.mark.process
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_of_the_runtime_fails_its_case(real_stage, monkeypatch, mutant):
    """A mutant that passes would say that nobody looks at what it does."""
    takes = inspect.signature(mutant.test).parameters
    given = (monkeypatch,) if "monkeypatch" in takes else mutant.given

    with mutant.planted(), pytest.raises((AssertionError, ValueError, IndexError)) as caught:
        play(mutant.test, real_stage(bound_s=REST_S), given)

    assert caught.traceback[-1].path.parent == FOLDER, "it is no case that failed"
