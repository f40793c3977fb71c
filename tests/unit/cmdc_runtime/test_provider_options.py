"""Options of a model that can never work are named where they are given."""

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.provider_options import options_problem
from tests.unit.cmdc_runtime.test_header_values import GIVEN

ONE = "a request has one answer, so n is 1, not"
BAD = {
    "two answers": ({"n": 2}, f"['n']: {ONE} 2; leave it out"),
    "no answer": ({"n": 0}, f"['n']: {ONE} 0"),
    "true answers": ({"n": True}, f"['n']: {ONE} True"),
    "answers as text": ({"n": "2"}, f"['n']: {ONE} '2'"),
    "two answers in the body": ({"extra_body": {"n": 2}}, f"['extra_body']['n']: {ONE} 2"),
}
FINE = {
    "nothing": {},
    "one answer": {"n": 1, "extra_body": {"n": 1}},
    "none": {"n": None, "extra_body": None},
    "another n": {"extra_body": {"grammar": {"n": 2}}},
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize(("options", "problem"), BAD.values(), ids=BAD)
def test_what_can_never_work_is_refused_where_it_is_given(give, options, problem):
    """With its place and the way out, before anything is started or sent."""
    with pytest.raises(InvalidOptions) as caught:
        give(options)

    assert f"provider_opts{problem}" in str(caught.value)


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("options", FINE.values(), ids=FINE)
def test_all_else_is_the_providers_affair(give, options):
    """Nobody knows all options of all models."""
    assert options_problem(options) is None
    give(options)
