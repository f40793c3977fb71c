"""What the daemon can be asked."""

import pytest

from cmdc_runtime.options import Options
from cmdc_runtime.reasons import snake
from cmdc_runtime.requests import Request, StartSession, Supervision, stop_reason_problem

KINDS = Request.__subclasses__()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_request_is_explained_and_named(kind):
    """Its wire name is its class's name in small letters."""
    assert kind.__doc__
    assert kind.__struct_config__.tag == snake(kind.__name__)
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("name", Supervision.__struct_fields__)
def test_supervision_has_one_set_of_defaults(name):
    """Those of the options; a session started without them is kept the same way."""
    assert getattr(Supervision(), name) == getattr(Options(), name)


def test_a_start_leaves_the_definition_closed():
    """The daemon forwards it and never reads it."""
    assert StartSession.__annotations__["agent"].__name__ == "Raw"


@pytest.mark.parametrize("reason", ["a\x1b[31m", "a\nb", "\0", "\ud800", 7, "x" * 1_001])
def test_a_stop_has_one_line_for_a_reason(reason):
    """Everybody gets to read it, in terminals too."""
    assert stop_reason_problem(reason) is not None
    assert stop_reason_problem("the work is done") is None
