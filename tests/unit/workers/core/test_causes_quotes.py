"""Values are read as they were written, and long texts are quoted from where they stand."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.commands import Command, Prompt, SwitchModel
from cmdc_runtime.events import Event, PluginEvent
from cmdc_runtime.messages import TokenUsage
from workers.core.causes import LONG, Quotes
from workers.core.state import State


@dataclass(frozen=True, slots=True)
class Inner:
    """A part."""

    text: str = ""
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Outer:
    """One field of each kind."""

    number: int
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    many: tuple[Inner, ...] = ()
    names: frozenset[str] = frozenset()
    state: State = State.IDLE
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - frozen
    command: Command | None = None
    order: Command = Prompt(text="")  # noqa: RUF009 - frozen
    event: Event = PluginEvent(name="", payload=None)  # noqa: RUF009 - frozen
    free: object = None


class Source(msgspec.Struct):
    """What is quoted."""

    text: str
    parts: dict[str, list[bytes]] = {}
    names: frozenset[str] = frozenset()


LINE = "a line that is long enough to be quoted"
RAW = b"\x00\xff" * LONG


def travelled(value, source):
    """Return what is written of a value, as it is read from a journal."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(Quotes(source).written(value)))


texts = st.text(max_size=60)
inners = st.builds(Inner, texts, st.binary(max_size=60))
outers = st.builds(
    Outer,
    number=st.integers(-5, 5),
    inner=inners,
    maybe=st.none() | inners,
    many=st.lists(inners, max_size=3).map(tuple),
    names=st.frozensets(texts, max_size=3),
    state=st.sampled_from(State),
    order=texts.map(lambda text: Prompt(text=text)),
    event=texts.map(lambda text: PluginEvent(name="found", payload=[text])),
    free=st.none() | texts | st.dictionaries(texts, texts, max_size=2),
)


@given(outers, st.lists(texts, max_size=4), st.lists(st.binary(max_size=60), max_size=3))
def test_a_value_is_read_as_it_was_written(value, lines, raws):
    """Whatever the source has of it, and also where it is the source itself."""
    for source in ([], [Source("".join(lines), {"raw": raws}), lines], value, [value.inner, value]):
        assert Quotes(source).read(Outer, travelled(value, source)) == value


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (LINE, LINE),
        (LINE, [{"in": {"deep": [LINE]}}]),
        (LINE, Source(f"before {LINE} behind")),
        (LINE, ["another line that is long enough", LINE]),
    ],
)
def test_a_text_is_not_repeated(text, source):
    """Wherever in the source it stands, and whatever stands around it."""
    written = travelled(Inner(text), source)

    assert LINE.encode() not in msgspec.msgpack.encode(written)
    assert Quotes(source).read(Inner, written) == Inner(text)


def test_bytes_are_quoted_from_bytes_alone():
    """A text of the same letters is another thing."""
    name = "n" * LONG
    source = [name, Source("", {"raw": [name.encode()]})]
    written = travelled(Outer(1, Inner(name, name.encode())), source)

    assert name.encode() not in msgspec.msgpack.encode(written)
    assert Quotes(source).read(Outer, written).inner == Inner(name, name.encode())


@pytest.mark.parametrize("length", [LONG - 1, LONG])
def test_a_short_text_is_written_as_it_is(length):
    """A quote of it would save nothing."""
    text = "n" * length

    assert (travelled(Inner(text), [text]) == {"text": text}) == (length < LONG)


def test_names_without_an_order_are_quoted_all_the_same():
    """The source is looked at in one order, in whatever process."""
    names = frozenset(f"{letter * LONG}" for letter in "gfedcba")
    quoted = travelled(Inner("d" * LONG), Source("", names=names))

    assert Quotes(Source("", names=frozenset(sorted(names)))).read(Inner, quoted).text == "d" * LONG


def test_what_a_field_has_by_default_is_left_out():
    """Also in a part; what has a tag keeps that."""
    written = travelled(Outer(1, order=SwitchModel(model="y:n")), [])

    assert written == {"number": 1, "order": {"type": "switch_model", "model": "y:n"}}


@dataclass(frozen=True, slots=True)
class Newer(Inner):
    """What a later program writes."""

    more: int = 1


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"text": "t", "more": 2}, "Inner has no more"),
        ({"text": 5}, "Expected `str`"),
        ({"text": msgspec.msgpack.Ext(127, b"\x93\x02\x00\x01")}, "not there: number 2"),
        ({"text": msgspec.msgpack.Ext(127, b"\x93\xff\x00\x01")}, "not there: number -1"),
        ({"text": msgspec.msgpack.Ext(127, b"\x93\x01\x1e\x20")}, "quotes 32 of a text, and"),
        ({"text": msgspec.msgpack.Ext(127, b"\x91\x00")}, "Expected `str`, got `array`"),
        ({"text": msgspec.msgpack.Ext(127, b"\x90")}, "length"),
        ({"text": msgspec.msgpack.Ext(9, b"")}, "Expected `str`"),
    ],
)
def test_what_was_not_written_so_is_said(written, why):
    """Whoever wrote it."""
    with pytest.raises(ValueError, match=why):
        Quotes([LINE]).read(Inner, written)


def test_what_msgspec_knows_nothing_of_has_no_texts():
    """It stands in a source as it may."""
    assert travelled(Inner(LINE), [object(), LINE, msgspec.msgpack.Ext(5, RAW)]) != {"text": LINE}
