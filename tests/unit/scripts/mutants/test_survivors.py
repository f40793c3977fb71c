"""Reasons why mutants may live are given for mutants that there are."""

from pathlib import Path

from scripts.mutants.__main__ import SURVIVORS, reasons_of
from scripts.mutants.belongs import modules
from scripts.mutants.operators import mutants_of


def test_every_reason_is_of_a_mutant_that_there_is():
    """One that is gone takes its reason with it: another of its name may come that must die."""
    named = {
        f"{module.path}: {mutant.name}"
        for module in modules()
        for mutant in mutants_of(Path(module.file).read_text(encoding="utf-8"))
    }

    assert reasons_of(SURVIVORS).keys() - named == set()
