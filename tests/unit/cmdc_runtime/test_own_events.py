"""What an application's own events are read as."""

import msgspec
import pytest

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.actions import Emit


class FilesIndexed(msgspec.Struct, frozen=True):
    files: int
    names: tuple[str, ...] = ()


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    file_count: int


class Keeping(msgspec.Struct):
    user_data: dict[str, int]


def emitted(event, **more):
    """Return what observers get of an emit."""
    ((name, payload),) = Emit(event).sealed().events()
    return PluginEvent(name=name, payload=payload | more)


@pytest.mark.parametrize(
    "event", [FilesIndexed(3, ("a", "b")), Strict(file_count=2), Keeping({"n": 1})]
)
def test_what_was_emitted_comes_back(event):
    """With what a plugin's event has besides, and whatever its fields are called on a wire."""
    more = {} if isinstance(event, Keeping) else {"user_data": {"who": "me"}}

    assert emitted(event, **more).payload_as(type(event)) == event


def test_another_name_is_none():
    """So that one can ask for each of several classes."""
    assert PluginEvent(name="rested", payload=None).payload_as(FilesIndexed) is None


@pytest.mark.parametrize("payload", [None, 5, [3], {"files": "three"}, {}, {1: 2}])
def test_what_does_not_fit_is_reported(payload):
    """With the class and the place."""
    event = PluginEvent(name="files_indexed", payload=payload)

    with pytest.raises(ProtocolError, match="the event 'files_indexed' is no FilesIndexed: "):
        event.payload_as(FilesIndexed)
    assert event.payload == payload
