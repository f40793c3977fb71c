"""Whether an answer has the form that ``response_format`` asks for.

The form is a JSON Schema: of the draft that its ``$schema`` names, else of 2020-12, which msgspec
and pydantic write. It was checked when the session was started. References outside the schema are
never fetched, and a check has a bound of CPU time: a pattern may take for ever on some texts.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cmdc_runtime.answer_schema import (
    UncheckableError,
    mismatches,
    parsed_text,
    validator_class,
)
from cmdc_runtime.bounded_check import CheckTooLongError, bounded
from cmdc_runtime.extensions.schema import PROBLEM_CHARS_MAX, PROBLEMS_MAX
from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import unread_reason


def problem(schema: Mapping[str, Any], text: str) -> str | None:  # Any: JSON Schema
    """Return in one line what is wrong with an answer, or None where it fits."""
    bare = parsed_text(text)
    if not bare:
        return "the answer is empty"
    try:
        value = msgspec.json.decode(bare)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _one_line(f"the answer is no JSON: {unread_reason(bare, error)}")
    return _mismatch(schema, value)


def _mismatch(schema: Mapping[str, Any], value: object) -> str | None:  # Any: JSON Schema
    kind = validator_class(dict(schema))
    try:
        found = bounded(lambda: mismatches(kind, schema, value))
    except CheckTooLongError as error:
        return f"the answer cannot be checked: {error}, perhaps for a pattern of response_format"
    except UncheckableError as error:
        return _one_line(f"response_format {error}")
    lines = [_one_line(f"{error.message} at {error.json_path}") for error in found[:PROBLEMS_MAX]]
    if len(found) > PROBLEMS_MAX:
        lines.append(f"and {len(found) - PROBLEMS_MAX} more")
    return "; ".join(lines) or None


def _one_line(text: str) -> str:
    return one_line(text, PROBLEM_CHARS_MAX)
