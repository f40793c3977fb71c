"""The tree of errors: what a catcher can rely on."""

import pytest

from cmdc_runtime import errors
from cmdc_runtime.errors import (
    ERRORS_BY_CODE,
    PROBLEM_CHARS_MAX,
    TEXT_CHARS_MAX,
    AgentAborted,
    AgentFailed,
    CmdcError,
    CollectTimeout,
    CommandTimeout,
    ExtensionError,
    InvalidOptions,
    ProtocolError,
    SessionError,
    SessionNotAlive,
    StartFailed,
    SteeringRejected,
    ToolValidationFailed,
    TransientError,
    UsageError,
)
from cmdc_runtime.reasons import Normal

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and value is not Exception
]
ERRORS = [value for value in CLASSES if issubclass(value, CmdcError)]
ADVICE = (UsageError, TransientError, SessionError, ExtensionError, ProtocolError)


def test_every_code_is_one_class():
    """A class with another's code would arrive as the other."""
    assert {error.code: error for error in ERRORS} == dict(ERRORS_BY_CODE)
    assert len(ERRORS_BY_CODE) == len(ERRORS)


@pytest.mark.parametrize("error", [error for error in ERRORS if error is not CmdcError])
def test_every_error_says_what_to_do(error):
    """It stands below exactly one piece of advice, and says for itself what it is."""
    assert sum(issubclass(error, advice) for advice in ADVICE) == 1
    assert error.__doc__
    assert "code" in vars(error)


@pytest.mark.parametrize("error", [CollectTimeout, CommandTimeout])
def test_a_timeout_is_a_timeout(error):
    """Whoever catches TimeoutError catches it, and trying again may help."""
    assert issubclass(error, TimeoutError)
    assert issubclass(error, TransientError)


@pytest.mark.parametrize(
    ("error", "details", "text"),
    [
        (InvalidOptions(["a", "b"]), {"problems": ("a", "b")}, "a; b"),
        (ToolValidationFailed([("t", "bad")]), {"problems": [("t", "bad")]}, "t: bad"),
        (SessionNotAlive(Normal()), {"reason": Normal()}, "the session ended: normal"),
        (StartFailed(Normal()), {"reason": Normal()}, "normal"),
        (AgentAborted("why"), {"reason": "why"}, "the cycle was aborted: why"),
        (AgentAborted(None), {"reason": None}, "the cycle was aborted: no reason given"),
        (AgentFailed("why"), {"reason": "why"}, "the cycle failed: why"),
        (SteeringRejected("why"), {"reason": "why"}, "the steering was rejected: why"),
        (ProtocolError("why"), {}, "why"),
    ],
    ids=repr,
)
def test_an_error_has_its_attributes_and_a_text(error, details, text):
    """What crosses the wire is what the constructor took."""
    assert (error.details(), str(error)) == (details, text)
    assert set(details) == set(error.fields)


def test_no_error_shows_a_value_whole():
    """Neither its text nor one of its problems."""
    value = "x" * 20_000_000

    for error in (
        CmdcError(f"{value}: refused"),
        InvalidOptions([f"a: {value}"] * 5),
        ToolValidationFailed([(value, value)] * 5),
    ):
        assert len(str(error)) == TEXT_CHARS_MAX
    assert {*map(len, InvalidOptions([value]).problems)} == {PROBLEM_CHARS_MAX}
    assert str(CmdcError(f"{value}: refused")).endswith("xxx: refused")
