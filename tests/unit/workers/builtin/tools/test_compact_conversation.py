"""``compact_conversation`` with a session that answers by script."""

import pytest

from cmdc_runtime.extensions import ToolError
from workers.builtin.tools import compact_conversation


@pytest.mark.parametrize(
    ("arguments", "reason"), [({}, "manual compact"), ({"reason": "too long"}, "too long")]
)
def test_report_of_the_session_is_the_result(workplace, arguments, reason):
    """The session gets the reason, and its report goes to the model as it is."""
    workplace.session.answer = "40 messages before, 3 after"

    assert workplace.call(compact_conversation.create(), **arguments) == (
        "40 messages before, 3 after"
    )
    assert workplace.session.asked == [("compact", reason)]


def test_error_of_the_session_is_the_result(workplace):
    """Why it could not be compacted reaches the model."""
    workplace.session.answer = ToolError("there is nothing to compact")

    assert workplace.failure(compact_conversation.create()) == "there is nothing to compact"


def test_no_session_nothing_to_compact(workplace):
    """A call outside of a session says so."""
    workplace.session = None

    assert workplace.failure(compact_conversation.create()).startswith("compact_conversation works")


def test_reason_is_bounded():
    """A reason is a sentence, not another conversation."""
    with pytest.raises(ToolError, match="Invalid arguments for compact_conversation"):
        compact_conversation.create().check(
            {"reason": "x" * (compact_conversation.REASON_CHARS_MAX + 1)}
        )
