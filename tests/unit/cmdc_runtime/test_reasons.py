"""Why processes and sessions end, as people and decoders read it."""

from typing import Any, get_args

import msgspec
import pytest

from cmdc_runtime import reasons
from cmdc_runtime.reasons import (
    LINE_CHARS_MAX,
    AnyReason,
    Down,
    DownReason,
    Evidence,
    PlainReason,
    size_text,
    snake,
)

KINDS = DownReason.__subclasses__()
AWKWARD = {
    Any: {"rule": ["a\nb", 7]},
    str: "two\nlines\t and\r\nmore ",
    int: 7,
    float: 1.5,
    bool: True,
}


def awkward(kind, times=1):
    """Return a reason whose every text has line breaks, so many times."""
    values = {}
    for field in msgspec.structs.fields(kind):
        given = AWKWARD.get(field.type)
        given = given * times if isinstance(given, str) else given
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
def test_every_reason_prints_as_a_short_line(kind):
    """However long its texts are; the fields have all of them."""
    assert len(str(awkward(kind, times=10_000))) <= LINE_CHARS_MAX


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_reason_says_on_whose_word_it_rests(kind):
    """A page of the reference shows it."""
    assert kind.decided_by


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
            reasons.OutOfMemory(rss_bytes=512 * 2**20, limit_bytes=512 * 2**20),
            "out of memory: 512 MiB resident, limit 512 MiB",
        ),
        (reasons.OutOfMemory(rss_bytes=3 * 2**29), "out of memory: 1.5 GiB resident"),
        (reasons.OutOfMemory(limit_bytes=2**20), "out of memory: limit 1 MiB"),
        (reasons.OutOfMemory(), "out of memory"),
        (reasons.Unresponsive(silent_ms=30_250), "unresponsive: silent for 30.25 s"),
        (
            reasons.Unkillable(seconds=10.0, state="D", wchan="rpc_wait_bit"),
            "unkillable: still there 10 s after SIGKILL, in state D at rpc_wait_bit",
        ),
        (
            reasons.Unkillable(seconds=10.0),
            "unkillable: still there 10 s after SIGKILL",
        ),
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
    """Words are distinguished by their capitals."""
    assert [snake(name) for name in ("Normal", "OutOfMemory")] == ["normal", "out_of_memory"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (9 * 1024 + 512, "9.5 KiB"),
        (10 * 2**20 + 2**19, "10 MiB"),
        (2**30, "1 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_a_size_has_the_unit_that_a_person_reads(size, text):
    """And no more digits than anybody needs."""
    assert size_text(size) == text


def test_a_notice_comes_back_as_itself():
    """With its reason as a struct, and the evidence."""
    down = Down(
        ref="r",
        session_id="s",
        reason=reasons.Normal(),
        incarnation=2,
        restarting=False,
        evidence=Evidence(pid=7, status=-9, killed_by="outside", tools=("shell",)),
    )

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(down), type=Down) == down
