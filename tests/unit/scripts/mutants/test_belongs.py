"""Each module that is mutated has tests that are there."""

from scripts.mutants.belongs import BELONGS, SLOW, modules
from scripts.mutants.place import ROOT


def test_what_belongs_is_there():
    """A place that has moved would notice nothing."""
    places = {place for tests in BELONGS.values() for place in tests}

    assert [place for place in sorted({*BELONGS, *places}) if not (ROOT / place).exists()] == []


def test_every_module_has_tests():
    """The first of them are its own."""
    assert [module.path for module in modules() if not module.own] == []


def test_the_tests_of_a_modules_name_are_its_own():
    """Wherever they stand: they are quick, and see most."""
    own = {module.path: module.own for module in modules()}

    assert own["cmdc_runtime/wire/sockets.py"] == (
        "tests/unit/cmdc_runtime/wire/test_sockets.py",
        "tests/integration/test_sockets.py",
        "tests/integration/test_sockets_waiting.py",
    )
    assert own["supervisor/core/self_check.py"] == (
        "tests/unit/supervisor/core/test_self_check.py",
        "tests/unit/supervisor/core/test_self_check_status.py",
    )
    assert "tests/model/test_supervision.py" in own["supervisor/core/tree/supervisor.py"]
    assert not any(file.startswith(SLOW) for file in own["supervisor/core/tree/supervisor.py"])
    assert own["supervisor/sessions/agent.py"] == (
        "tests/unit/supervisor/test_agent.py",
        "tests/unit/supervisor/test_agent_orders.py",
        "tests/unit/supervisor/test_agent_acks.py",
    )
