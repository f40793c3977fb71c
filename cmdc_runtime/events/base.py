"""What every event is."""

from typing import ClassVar

import msgspec

from cmdc_runtime.reasons import snake


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake):
    """Base of all events."""

    durable: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """The event's name on the wire: ``MessageDelta`` is ``message_delta``."""
        return str(self.__struct_config__.tag)
