"""Bytes to structs and back: nothing is lost, and nothing but ProtocolError comes of bad bytes."""

import random
import types
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime import codec
from cmdc_runtime.commands import Command, CycleResult, Status
from cmdc_runtime.errors import (
    ERRORS_BY_CODE,
    AgentAborted,
    CmdcError,
    ProtocolError,
    SessionNotAlive,
)
from cmdc_runtime.events import Event, MessageDelta, StreamReset, UnknownEvent
from cmdc_runtime.frames import (
    Failed,
    FromClient,
    FromWorker,
    Published,
    ToClient,
    ToWorker,
)
from cmdc_runtime.reasons import RestartIntensityExceeded, Signal
from cmdc_runtime.requests import Request

BASES = (FromClient, ToClient, FromWorker, ToWorker, Published, Command, Request, Event)
KINDS = {
    base: [kind for kind in base.__subclasses__() if kind is not UnknownEvent] for base in BASES
}
EXAMPLES_PER_KIND = 10
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
    if kind in SIMPLE:
        return SIMPLE[kind]
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([values(arg) for arg in args])
    if origin is tuple and args[-1:] != (...,):
        return st.tuples(*[values(arg) for arg in args])
    if origin in (tuple, list):
        return st.lists(values(args[0]), max_size=3).map(origin)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    return structs(kind)


def structs(kind):
    """Return a strategy for a struct with every field given."""
    if kind.__name__ == "TreeNode":  # holds itself
        return st.builds(kind, id=st.text(), kind=st.just("worker"))
    fields = get_type_hints(kind)
    return st.fixed_dictionaries({name: values(fields[name]) for name in kind.__struct_fields__}).map(
        lambda given_: kind(**given_)
    )


def of_base(base):
    return st.one_of([structs(kind) for kind in KINDS[base]])


@every_base
def test_every_direction_has_kinds(base):
    """A base without subclasses would take nothing."""
    assert KINDS[base]


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
@given(data=st.data())
def test_every_kind_comes_back_as_itself(base, data):
    """Each class of each direction, with all of its fields."""
    for kind in KINDS[base]:
        value = data.draw(structs(kind))
        back = codec.decode(base, codec.encode(value))

        assert type(back) is kind
        assert back == value


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
    for number in range(10_000):
        data = bytearray(draw.randbytes(20) if number % 4 == 0 else draw.choice(frames))
        if number % 4 == 1:
            data[draw.randrange(len(data))] = draw.randrange(256)
        if number % 4 == 2:
            del data[draw.randrange(len(data)) :]
        try:
            assert isinstance(codec.decode(base, bytes(data)), base)
        except ProtocolError:
            refused += 1

    assert 5_000 < refused < 10_000


def example(kind):
    """Return a struct of a kind, filled with plain values."""
    hints = get_type_hints(kind)
    return msgspec.structs.force_setattr and kind(
        **{name: plainest(hints[name]) for name in kind.__struct_fields__}
    )
