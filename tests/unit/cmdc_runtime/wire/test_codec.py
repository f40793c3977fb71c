"""Bytes to structs and back: nothing is lost, and nothing but ProtocolError comes of bad bytes."""

import random
import types
from functools import cache
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from cmdc_runtime.checked_struct import TIME_MS_MAX
from cmdc_runtime.commands import Command
from cmdc_runtime.errors import (
    ERRORS_BY_CODE,
    AgentAborted,
    CmdcError,
    ProtocolError,
    SessionNotAlive,
    UsageError,
)
from cmdc_runtime.events import Event, MessageDelta, StreamReset, UnknownEvent
from cmdc_runtime.reasons import AnyReason, Down, RestartIntensityExceeded, Signal
from cmdc_runtime.requests import Request
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import (
    FailedReply,
    FromClient,
    FromWorker,
    Published,
    ToClient,
    ToWorker,
)

BASES = (FromClient, ToClient, FromWorker, ToWorker, Published, Command, Request, Event)
KINDS = {
    base: [kind for kind in base.__subclasses__() if kind is not UnknownEvent] for base in BASES
}
few = settings(max_examples=10)  # each example is one of every kind
NOISE = 2_000
every_base = pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)

integers = st.integers(-(2**63), 2**64 - 1)
plain = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
SIMPLE = {
    str: st.text(max_size=8),
    int: integers,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=8),
    type(None): st.none(),
    object: plain,
    Any: plain,
    msgspec.Raw: plain.map(codec.raw),
}


def values(kind):
    """Return a strategy for values of a type as it stands in an annotation."""
    args = get_args(kind)
    match get_origin(kind) or kind:
        case simple if simple in SIMPLE:
            found = SIMPLE[simple]
        case NewType(__supertype__=base):
            found = values(base)
        case origin if origin is Literal:
            found = st.sampled_from(args)
        case origin if origin is Annotated:
            found = within(args[0], args[1])
        case origin if origin in (Union, types.UnionType):
            found = st.one_of([values(arg) for arg in args])
        case origin if origin is tuple and args[-1] is not ...:
            found = st.tuples(*[values(arg) for arg in args])
        case origin if origin in (tuple, list):
            found = st.lists(values(args[0]), max_size=3).map(origin)
        case origin if origin is dict:
            found = st.dictionaries(values(args[0]), values(args[1]), max_size=3)
        case struct:
            found = structs(struct)
    return found


def within(kind, bound):
    """Return a strategy for the values of a type that its bounds allow."""
    if bound.pattern is not None:
        shortest = bound.pattern.replace("*", "{0,9}").replace("+", "{1,9}")
        return st.from_regex(shortest, fullmatch=True)
    if kind is float:
        low = bound.gt if bound.ge is None else bound.ge
        return st.floats(low, bound.le, exclude_min=bound.ge is None)
    return st.integers(bound.ge, bound.le)


def structs(kind):
    """Return a strategy for a struct with every field given."""
    if kind.__name__ == "TreeNode":  # holds itself
        return st.builds(kind, id=st.text(), kind=st.just("worker"))
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: values(hints[name]) for name in kind.__struct_fields__}
    return st.fixed_dictionaries(fields).map(lambda given_: kind(**given_))


def of_base(base):
    return st.one_of([structs(kind) for kind in KINDS[base]])


@every_base
def test_every_direction_has_kinds(base):
    """A base without subclasses would take nothing."""
    assert KINDS[base]


@every_base
@few
@given(data=st.data())
def test_every_kind_comes_back_as_itself(base, data):
    """Each class of each direction, with all of its fields."""
    for kind in KINDS[base]:
        value = data.draw(structs(kind))
        back = codec.decode(base, codec.encode(value))

        assert type(back) is kind
        assert back == value


@few
@given(data=st.data())
def test_every_answer_comes_back_as_itself(data):
    """What a command or a request is answered with can be read as the type that it names."""
    for kind in [*KINDS[Command], *KINDS[Request]]:
        answer = data.draw(values(type(None) if kind.answer is None else kind.answer))

        assert codec.decode_as(kind.answer, codec.encode(answer)) == answer


@every_base
def test_random_bytes_are_refused(base):
    """Noise, and frames of any direction with a byte changed or their end torn off."""
    draw = random.Random(base.__name__)
    frames = [codec.encode(example(kind)) for kinds in KINDS.values() for kind in kinds]
    refused = 0
    for number in range(NOISE):
        data = bytearray(draw.randbytes(20) if number % 4 == 0 else draw.choice(frames))
        if number % 4 == 1:
            data[draw.randrange(len(data))] = draw.randrange(256)
        if number % 4 == 2:
            del data[draw.randrange(len(data)) :]
        try:
            assert isinstance(codec.decode(base, bytes(data)), base)
        except ProtocolError:
            refused += 1

    assert NOISE // 2 < refused < NOISE


@cache
def example(kind):
    """Return one struct of a kind, always the same."""
    once = settings(derandomize=True, database=None, phases=[Phase.generate])
    return find(structs(kind), lambda _: True, settings=once)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        codec.encode({"type": "prompt", "text": 5}),
        codec.encode({"type": "prompt"}),
        codec.encode({"type": "of_the_future"}),
        codec.encode({"text": "no type"}),
        b"\x82\xa4type\xa6prompt\xa4text\xa2\xff\xff",
        codec.encode({"type": "get_status"}) + b"\x00",
    ],
    ids=["empty", "no type", "deep", "wrong", "missing", "unknown", "untagged", "no utf-8", "more"],
)
def test_what_is_no_command_is_a_protocol_error(data):
    """Strict: nothing is guessed, coerced or left over."""
    with pytest.raises(ProtocolError, match="not a Command"):
        codec.decode(Command, data)


def test_a_plain_value_of_another_type_is_a_protocol_error():
    """The bytes are right, and hold something else."""
    for data in (b"\xa1x", b"", b"\xa1\xff"):
        with pytest.raises(ProtocolError):
            codec.decode_as(int, data)


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        (AgentSpec, "not the session's definition: Expected `object`, got `str`"),
        (Down, "not a down: Expected `object`, got `str`"),
        (dict[str, int], "not what should be here: Expected `object`, got `str`"),
        (AnyReason, "not what should be here: Expected `object`, got `str`"),
    ],
)
def test_what_should_have_come_is_named_in_words(kind, reported):
    """A person reads it as the reason of an end, and knows none of our classes."""
    with pytest.raises(ProtocolError) as raised:
        codec.decode_as(kind, codec.encode("x"))

    assert str(raised.value) == reported


def test_a_raw_body_is_the_value_as_it_is():
    """Put into a frame it is not wrapped again."""
    assert codec.encode([codec.raw({"a": 1})]) == codec.encode([{"a": 1}])


@given(st.lists(st.tuples(st.integers(0, TIME_MS_MAX), of_base(Event)), max_size=5))
def test_a_batch_comes_back_as_it_was(entries):
    """Times and events, in order."""
    assert codec.decode_events(codec.encode_events(entries)) == entries


def test_an_event_of_a_newer_peer_is_kept_as_it_is():
    """Its name and its payload, between events that are known; a changed known one too."""
    newer = {"kind": "of_the_future", "depth": 3}
    changed = {"kind": "message_delta", "delta": ["now", "a", "list"]}
    batch = [(1, StreamReset()), (2, newer), (3, changed), (4, MessageDelta(delta="x"))]

    assert codec.decode_events(codec.encode(batch)) == [
        (1, StreamReset()),
        (2, UnknownEvent(name="of_the_future", data={"depth": 3})),
        (3, UnknownEvent(name="message_delta", data={"delta": ["now", "a", "list"]})),
        (4, MessageDelta(delta="x")),
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"\x91\x92\x01\x05", codec.encode([(1, ["no", "map"])]), codec.encode([(1.5, {})])],
    ids=["empty", "a number", "a list", "no time"],
)
def test_what_is_no_batch_is_a_protocol_error(body):
    """An event is a map with a kind, whatever its version."""
    with pytest.raises(ProtocolError):
        codec.decode_events(body)


def errors(kind):
    """Return a strategy for errors of a class."""
    if not kind.fields:
        return st.text().map(kind)
    fields = {name: values(type_) for name, type_ in kind.fields.items()}
    return st.fixed_dictionaries(fields).map(lambda given_: kind(**given_))


@pytest.mark.parametrize("code", ERRORS_BY_CODE)
@few
@given(data=st.data())
def test_an_error_arrives_as_itself(code, data):
    """Its class, its message and its attributes."""
    error = data.draw(errors(ERRORS_BY_CODE[code]))
    frame = codec.decode(ToClient, codec.encode(codec.failed("c-1", error)))
    back = codec.raised(frame)

    assert (frame.id, frame.code) == ("c-1", code)
    assert type(back) is type(error)
    assert (str(back), back.details()) == (str(error), error.details())


def failure(code, details):
    return FailedReply(id="c-1", code=code, message="so it is", details=msgspec.Raw(details))


def test_an_error_of_a_newer_peer_is_still_ours():
    """A code that is not known arrives as the root of the tree, with its message."""
    error = codec.raised(failure("of_the_future", codec.encode({"x": 1})))

    assert type(error) is CmdcError
    assert str(error) == "so it is"


@pytest.mark.parametrize(
    "details", [b"\xc1", b"", b"\x05", codec.encode({}), codec.encode({"reason": 5})]
)
def test_broken_details_are_an_error_too(details):
    """It is returned like any other, so that who waits for the answer gets it."""
    error = codec.raised(failure("session_not_alive", details))

    assert type(error) is ProtocolError


def test_nested_reasons_cross_the_wire():
    """The last reason inside of a spent budget is still a struct."""
    spent = RestartIntensityExceeded(restarts=3, seconds=5.0, last=Signal(number=9, name="SIGKILL"))
    error = codec.raised(codec.failed("c-1", SessionNotAlive(spent)))

    assert error.reason == spent
    assert codec.raised(codec.failed("c-1", AgentAborted(None))).reason is None


def test_half_a_character_is_reported_in_our_words():
    """Not in those of a codec, wherever a value is made ready to travel."""
    with pytest.raises(
        UsageError, match="a dict cannot be sent: it is no valid UTF-8: half a surr"
    ):
        codec.encode({"a": "\ud800"})
