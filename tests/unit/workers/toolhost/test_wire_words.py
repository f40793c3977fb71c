"""Words of a call: whatever a tool returned or raised, made fit and bounded."""

import math
from asyncio import CancelledError
from dataclasses import dataclass
from enum import Enum

import msgspec
import pytest

from cmdc_runtime import foreign
from cmdc_runtime.extensions import Effect, ToolError
from cmdc_runtime.reasons import Signal
from workers.toolhost.wire import (
    NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    REPORT_CHARS_MAX,
    RESULT_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    Crashed,
    Cut,
    Died,
    Emitted,
    Refused,
    Returned,
    checked_event,
    crashed,
    decoded_report,
    encoded,
    returned,
)


def test_a_payload_is_what_will_be_read():
    """A copy in the wire's own types: a tuple is a list from here on."""
    payload = {"pair": (1, 2)}

    assert checked_event("n", payload) == ("n", {"pair": [1, 2]})
    assert returned(Effect("n", payload)).effect == ("n", {"pair": [1, 2]})


def test_a_struct_is_a_name_and_a_payload():
    """Its class's name in small letters, and its fields, whatever they are called on a wire."""

    class FilesIndexed(msgspec.Struct, rename="camel"):
        file_count: int
        parts: tuple[int, ...] = ()

    assert checked_event(FilesIndexed(3, (1, 2)), None) == (
        "files_indexed",
        {"file_count": 3, "parts": [1, 2]},
    )
    with pytest.raises(ToolError, match="the payload of 'files_indexed' cannot be kept"):
        checked_event(FilesIndexed(object()), None)


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS_MAX + 1), 5, None])
def test_a_name_is_a_short_text(name):
    """Anything else is an error for the tool."""
    with pytest.raises(ToolError, match="1 to 128 characters"):
        checked_event(name, None)


def test_a_payload_is_bounded():
    """The tool reads what to do with large data."""
    with pytest.raises(ToolError, match=f"more than {PAYLOAD_BYTES_MAX}: put large data"):
        returned(Effect("n", "x" * PAYLOAD_BYTES_MAX))


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


class Answer(Enum):
    """A member whose value is another key, too."""

    YES = "yes"


UNKEPT = {
    "deep": (nested(70), "it nests more than 64 levels deep"),
    "very deep": (nested(5_000), "RecursionError"),
    "large integer": ({"a": 2**64}, "OverflowError"),
    "not a number": ({"a": [math.nan]}, "['a'][0]: nan is not a finite number"),
    "surrogate": ("\ud800", "UnicodeEncodeError"),
    "object": (object(), "TypeError"),
    "keys": ({1: 2}, "a key is of type int"),
    "keys that are one": (
        {Answer.YES: 1, "yes": 2},
        "two keys of one dict in it are the same text",
    ),
}


@pytest.mark.parametrize(("payload", "why"), UNKEPT.values(), ids=UNKEPT)
def test_a_payload_that_cannot_be_kept_is_the_tools_mistake(payload, why):
    """The tool gets the error, and the model reads it: no event of it is ever made."""
    for make in (lambda: checked_event("n", payload), lambda: returned(Effect("n", payload))):
        with pytest.raises(ToolError) as caught:
            make()

        assert str(caught.value).startswith("the payload of 'n' cannot be kept: ")
        assert why in str(caught.value)


@dataclass
class Found:
    """A result of a tool's own type."""

    score: float


CHANGED = {
    "nan": ({"a": [1, math.nan]}, "['a'][1]: nan is not a finite number"),
    "infinity": ([-math.inf], "[0]: -inf is not a finite number"),
    "in a dataclass": (Found(math.nan), "['score']: nan is not a finite number"),
    "surrogate": ("a\udce4", "half a surrogate pair (U+DCE4) at 1"),
    "surrogate within": ({"name": "a\udce4"}, "['name']: it is no valid UTF-8"),
    "surrogate in a key": ({"a\udce4": 1}, "a key of it: it is no valid UTF-8"),
    "text of an effect": (Effect("n", 1, text="\ud800"), "half a surrogate pair (U+D800)"),
    "deep": (nested(70), "it nests more than 64 levels deep"),
    "very deep": (nested(5_000), "it nests more than 64 levels deep"),
    "many digits": (10**6_000, "ValueError"),
    "large integer": ([2**64], "[0]: it is an integer beyond 64 bits"),
}


@pytest.mark.parametrize(("value", "why"), CHANGED.values(), ids=CHANGED)
def test_a_result_that_cannot_be_kept_is_reported(value, why):
    """The model reads what of it and where, and nothing else in the place of it."""
    with pytest.raises(ToolError) as caught:
        returned(value)

    assert str(caught.value).startswith("the tool has run, but its result cannot be kept: ")
    assert why in str(caught.value)


def failing_with(error):
    """Return values whose text fails so: by themselves, in a list, as a model, in an effect."""

    class Failing:
        def __str__(self):
            raise error

        __repr__ = __str__

    class Model(Failing):
        def model_json_schema(self): ...

        def model_dump(self, mode):
            raise error

    class Faceless(Failing):
        @property
        def __class__(self):
            raise error

    yield from (Failing(), Model(), Faceless(), [Failing()], {"a": {Failing(): 1}})
    yield unchecked_effect(Failing())


def unchecked_effect(text):
    """Return an effect with a text that is none, as who goes around its checks can make it."""
    effect = Effect("n")
    msgspec.structs.force_setattr(effect, "text", text)
    return effect


FAILURES = [
    *(RuntimeError("no repr"), AttributeError("no"), RecursionError(), MemoryError()),
    *(SystemExit(4), KeyboardInterrupt(), GeneratorExit(), StopIteration(), CancelledError()),
    *(ToolError("not this"), BaseExceptionGroup("g", [SystemExit(1)])),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_result_whose_text_fails_is_reported_as_one(error):
    """Whatever its class raises, the tool has run: it neither failed nor tried to end a process."""
    for value in failing_with(error):
        with pytest.raises(ToolError) as caught:
            returned(value)

        assert str(caught.value).startswith("the tool has run, but its result cannot be kept: ")


@pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (2**80, str(2**80))])
def test_a_number_by_itself_is_what_python_writes(value, text):
    """The model reads what is there."""
    assert returned(value).text == text


@pytest.mark.parametrize("payload", [{1, 2}, b"\xff", 1.5, {"a": [None, True]}], ids=str)
def test_a_payload_may_be_any_plain_value(payload):
    """Sets come as lists."""
    _, kept = checked_event("n\x1b", payload)

    assert kept == (list(payload) if isinstance(payload, set) else payload)
    assert checked_event("n\x1b", None)[0] == "n\ufffd"


def of_depth(levels):
    return b"\x91" * levels + b"\xc0"


BAD_WORDS = {
    "garbage": b"\xff" * 64,
    "deep": b"\x93\xa7emitted\xa1n" + of_depth(70),
    "very deep": b"\x93\xa7emitted\xa1n" + of_depth(100_000),
    "effect": b"\x93\xa8returned\xa1t\x92\xa1n" + of_depth(70),
    "name": encoded(Emitted(name="n" * 1_000, payload=None)),
    "not a number": encoded(Emitted(name="n", payload=math.nan)),
    "no text": b"\x92\xa7refused\xa1\xff",
}


@pytest.mark.parametrize("body", BAD_WORDS.values(), ids=BAD_WORDS)
def test_what_another_process_says_is_checked_again(body):
    """Foreign code has its pipe: what it writes there itself is its crash, and nobody else's."""
    word = decoded_report(body)

    assert isinstance(word, Crashed)
    assert word.text.startswith("the tool's process said what can't be taken: ")


def test_what_another_process_says_is_heard():
    """Its text is cut to the bound that holds for every call."""
    reports = [
        Emitted(name="n", payload=[1]),
        Returned(text="t", effect=("n", 1)),
        Refused(text="r"),
    ]

    assert [decoded_report(encoded(word)) for word in reports] == reports
    for size in (RESULT_CHARS_MAX + 1, REPORT_CHARS_MAX + 1):
        text = decoded_report(encoded(returned("x" * size))).text

        assert text == f"{'x' * RESULT_CHARS_MAX}\n[cut: the result had {size} characters]"
    rogue = decoded_report(encoded(Returned(text="x" * (REPORT_CHARS_MAX + 1)))).text
    assert len(rogue) < REPORT_CHARS_MAX


def test_an_effect_has_a_text_of_its_own():
    """Where none is given the model reads that it was applied."""
    assert returned(Effect("n")) == Returned(text="[effect applied]", effect=("n", None))


def test_a_traceback_keeps_its_end():
    """That is where the failure is."""

    def deep(n):
        if n == 0:
            raise ValueError("x" * TRACEBACK_CHARS_MAX)
        deep(n - 1)

    with pytest.raises(ValueError) as caught:
        deep(20)
    word = crashed(caught.value)

    assert len(word.detail) == TRACEBACK_CHARS_MAX
    assert word.detail.endswith("x\n")


def test_a_death_names_its_reason():
    """As a DownReason prints."""
    died = Died(reason=Signal(number=11, name="SIGSEGV"))

    assert died.text == "Error: the tool's process died: killed by signal 11 (SIGSEGV)"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (Crashed(text="a secret", detail="the secret"), Crashed(text="a ***", detail="the ***")),
        (Refused(text="a secret"), Refused(text="a ***")),
        (Cut(text="a secret"), Cut(text="a ***")),
        (Returned(text="a secret"), Returned(text="a secret")),
        (Emitted(name="n", payload="a secret"), Emitted(name="n", payload="a secret")),
    ],
    ids=lambda word: type(word).__name__,
)
def test_failures_of_another_process_pass_what_hides(said, word):
    """It knows no credentials; what a tool returns or emits is its own."""
    foreign.hide_by(lambda text: text.replace("secret", "***"))
    try:
        assert decoded_report(encoded(said)) == word
    finally:
        foreign.hide_by(None)
