"""Words of a call: whatever a tool returned or raised, made fit and bounded."""

import pytest

from cmdc_runtime.extensions import Effect, ToolError
from cmdc_runtime.reasons import Signal
from workers.toolhost.words import (
    NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    TRACEBACK_CHARS_MAX,
    Died,
    Returned,
    checked_event,
    crashed,
    returned,
)


def test_a_payload_is_what_will_be_read():
    """A copy in the wire's own types: a tuple is a list from here on."""
    payload = {"pair": (1, 2)}

    assert checked_event("n", payload) == ("n", {"pair": [1, 2]})
    assert returned(Effect("n", payload)).effect == ("n", {"pair": [1, 2]})


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS_MAX + 1), 5, None])
def test_a_name_is_a_short_text(name):
    """Anything else is told to the tool."""
    with pytest.raises(ToolError, match="1 to 128 characters"):
        checked_event(name, None)


def test_a_payload_is_bounded():
    """The tool reads what to do with large data."""
    with pytest.raises(ToolError, match=f"more than {PAYLOAD_BYTES_MAX}: put large data"):
        returned(Effect("n", "x" * PAYLOAD_BYTES_MAX))


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
