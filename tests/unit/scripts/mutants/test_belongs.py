"""Each module that is mutated has tests that are there."""

from scripts.mutants.belongs import BELONGS, ROOT, modules


def test_what_belongs_is_there():
    """A place that has moved would notice nothing."""
    places = {place for tests in BELONGS.values() for place in tests}

    assert [place for place in sorted({*BELONGS, *places}) if not (ROOT / place).exists()] == []


def test_every_module_has_tests():
    """The first of them are its own."""
    assert [module.path for module in modules() if not module.own] == []
