"""Options of a model that can never work are named where they are given."""

import math

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.provider_options import INTERNAL, OURS, options_problem
from tests.unit.cmdc_runtime.test_provider_options_header_values import GIVEN

ONE = "a request has one answer, so n is 1, not"
JSON = "have no form in JSON; give a str"
SECONDS = "expected seconds, a number above 0, got"
BAD = {
    "bytes": ({"user": b"x"}, f"['user']: bytes {JSON}"),
    "bytes within": ({"extra_body": {"a": [b"x"]}}, f"['extra_body']['a'][0]: bytes {JSON}"),
    "changeable bytes": ({"user": bytearray(b"x")}, f"['user']: bytearray {JSON}"),
    "no time": ({"timeout": 0}, f"['timeout']: {SECONDS} 0"),
    "time before": ({"timeout": -1.5}, f"['timeout']: {SECONDS} -1.5"),
    "endless time": ({"timeout": math.inf}, "['timeout']: inf is not a finite number"),
    "time as text": ({"timeout": "5"}, f"['timeout']: {SECONDS} str"),
    "true time": ({"timeout": True}, f"['timeout']: {SECONDS} True"),
    "times": ({"timeout": [1, 2]}, f"['timeout']: {SECONDS} list"),
    "time of a stream": ({"stream_timeout": -1}, f"['stream_timeout']: {SECONDS} -1"),
    **{name: ({name: "x"}, f"['{name}']: it is set by the runtime; {OURS[name]}") for name in OURS},
    **{
        name: ({name: "x"}, f"['{name}']: it is an argument that litellm keeps for itself")
        for name in (*INTERNAL, "_skip_mcp_handler")
    },
    **{
        name: ({name: "x"}, f"['{name}']: it is for tests of litellm; use ")
        for name in ("mock_response", "mock_tool_calls", "mock_timeout", "mock_delay")
    },
    "two answers": ({"n": 2}, f"['n']: {ONE} 2; leave it out"),
    "no answer": ({"n": 0}, f"['n']: {ONE} 0"),
    "true answers": ({"n": True}, f"['n']: {ONE} True"),
    "answers as text": ({"n": "2"}, f"['n']: {ONE} str"),
    "two answers in the body": ({"extra_body": {"n": 2}}, f"['extra_body']['n']: {ONE} 2"),
}
FINE = {
    "times": {"timeout": 0.5, "stream_timeout": 3, "request_timeout": None},
    "names of nothing": {"client": None, "mock_response": None, "stream": None},
    "another client": {"extra_body": {"client": "x", "timeout": "5", "stream": True}},
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
