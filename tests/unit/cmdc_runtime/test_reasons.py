"""Why processes and sessions end, as people and decoders read it."""

from typing import get_args

import msgspec
import pytest

from cmdc_runtime import reasons
from cmdc_runtime.reasons import AnyReason, Down, DownReason, PlainReason, snake

KINDS = DownReason.__subclasses__()
AWKWARD = {str: "two\nlines\t and\r\nmore ", int: 7, float: 1.5, bool: True}


def awkward(kind):
    """Return a reason whose every text has line breaks."""
    values = {}
    for field in msgspec.structs.fields(kind):
        given = AWKWARD.get(field.type)
        values[field.name] = reasons.Other(detail="a\nb") if given is None else given
    return kind(**values)


def test_every_reason_is_in_the_unions():
    """A class that is missing there could not be read from the wire."""
    nested = {reasons.RestartIntensityExceeded}

    assert set(get_args(PlainReason)) == set(KINDS) - nested
    assert set(get_args(AnyReason)) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_reason_prints_as_one_line(kind):
    """Whatever texts it was made of."""
    text = str(awkward(kind))

    assert text == " ".join(text.split())
    assert text
    assert "(" not in text or "=" not in text, "the text of a struct is for programs"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_reason_comes_back_as_itself(kind):
    """Tagged by its name."""
    reason = awkward(kind)
    data = msgspec.msgpack.encode(reason)

    assert msgspec.msgpack.decode(data, type=AnyReason) == reason
    assert msgspec.msgpack.decode(data)["kind"] == snake(kind.__name__)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (reasons.Normal(), "normal"),
        (reasons.Shutdown(), "shutdown"),
        (reasons.Shutdown(detail="bye"), "shutdown: bye"),
        (reasons.Exception(type="ValueError", message="no"), "exception: ValueError: no"),
        (reasons.Signal(number=9, name="SIGKILL"), "killed by signal 9 (SIGKILL)"),
        (
            reasons.Signal(number=11, name="SIGSEGV", core_dumped=True),
            "killed by signal 11 (SIGSEGV, core dumped)",
        ),
        (reasons.ExitCode(code=3), "exit status 3"),
        (
            reasons.RestartIntensityExceeded(restarts=3, seconds=5.0, last=reasons.Normal()),
            "3 restarts in 5 s were not enough; last: normal",
        ),
    ],
    ids=str,
)
def test_a_reason_reads_well(reason, text):
    """It stands in logs and in error messages."""
    assert str(reason) == text


def test_names_become_wire_names():
    """Words are told apart by their capitals."""
    assert [snake(name) for name in ("Normal", "OutOfMemory")] == ["normal", "out_of_memory"]


def test_a_notice_comes_back_as_itself():
    """With its reason as a struct."""
    down = Down(ref="r", session_id="s", reason=reasons.Normal(), incarnation=2, restarting=False)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(down), type=Down) == down
