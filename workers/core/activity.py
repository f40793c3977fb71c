"""What keeps a session awake: a table, with a row for each command.

An idle session that may hibernate counts the time since the last activity. What changes something
is one, and so is every result of the session's own work; a question is none, however often it is
asked. Who waits for the end of a cycle keeps the session awake by waiting, and not by asking.
"""

from collections.abc import Mapping
from typing import Final

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    Command,
    DetachPlugin,
    DetachTools,
    ForgetWait,
    GetMessages,
    GetStatus,
    NextPage,
    Prompt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Steer,
    SwitchModel,
    UserRespond,
)
from workers.core.causes import Given
from workers.core.inputs import Order

# fmt: off
IS_ACTIVITY: Final[Mapping[type[Command], bool]] = {
    Prompt:         True,
    Steer:          True,
    Abort:          True,
    Approve:        True,
    Reject:         True,
    UserRespond:    True,
    AttachTools:    True,
    DetachTools:    True,
    ReplaceTools:   True,
    AttachPlugin:   True,
    DetachPlugin:   True,
    SwitchModel:    True,
    SaveCheckpoint: True,
    AwaitCycle:     False,
    ForgetWait:     False,
    GetStatus:      False,
    GetMessages:    False,
    NextPage:       False,
}
# fmt: on
"""Total: a test fails when a command has no row."""


def counts(given: Given) -> bool:
    """Say whether an idle session begins to count its rest anew after ``given``."""
    return not isinstance(given, Order) or IS_ACTIVITY[type(given.command)]
