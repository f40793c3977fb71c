"""Envelopes, headers and topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.codec import encode
from cmdc_runtime.frames import (
    FRAME_BYTES_MAX,
    HEADER,
    MAGIC,
    WIRE_VERSION,
    FromClient,
    FromWorker,
    Published,
    ToClient,
    ToWorker,
    Written,
    topic_of,
)
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.reasons import snake

BASES = (FromClient, ToClient, FromWorker, ToWorker, Published)
KINDS = [kind for base in BASES for kind in base.__subclasses__()]
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,5}", fullmatch=True)


def test_a_header_tells_the_version():
    """The first bytes are ours, the last one is the version."""
    assert MAGIC + bytes([WIRE_VERSION]) == HEADER
    assert 0 < WIRE_VERSION < 256


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_frame_is_a_tagged_array(kind):
    """Field names take no room on the wire; frames are explained and can't change."""
    assert kind.__struct_config__.array_like
    assert kind.__struct_config__.tag == snake(kind.__name__)
    assert kind.__struct_config__.frozen
    assert kind.__doc__


def test_a_small_frame_is_small():
    """The tag and the fields, nothing else."""
    assert encode(Written(number=5, index=9)) == b"\x93\xa7written\x05\x09"


@given(names, names)
def test_a_topic_matches_its_session_only(one, two):
    """A subscription is a prefix: no session's topic begins with another's."""
    assert is_session_id(one)
    assert topic_of(two).startswith(topic_of(one)) == (one == two)


def test_a_frame_may_hold_a_whole_history_frame():
    """The bound of a part is far above that of the batches that we make."""
    assert FRAME_BYTES_MAX >= 16 * 2**20
