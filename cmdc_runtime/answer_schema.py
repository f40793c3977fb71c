"""``response_format``: what an application may give, and the JSON Schema that it stands for.

A dict is a JSON Schema by itself, of the draft that its ``$schema`` names, else of 2020-12. A
class with ``model_json_schema`` is one of pydantic's; everything else is a type for msgspec. To
take one more kind of type, add it to ``answer_schema``.
"""

from typing import Any, Final

import msgspec

from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import reason_of
from cmdc_runtime.schema_references import reference_problem
from cmdc_runtime.schema_values import values_problem

Schema = dict[str, Any]  # Any: JSON

PROBLEM_CHARS_MAX: Final = 280


def answer_schema(response_format: object) -> Schema:
    """Return the JSON Schema of the answers that ``response_format`` asks for.

    A dict comes back unchecked; ``schema_problem`` checks it.

    Raises:
        TypeError: it is no type that has a schema; the message says what is missing.
    """
    if isinstance(response_format, dict):
        return response_format
    of_pydantic = getattr(response_format, "model_json_schema", None)
    if callable(of_pydantic):
        return _told(of_pydantic)
    return _told(lambda: msgspec.json.schema(response_format))


def schema_problem(schema: Schema) -> str | None:
    """Say what keeps ``schema`` from being a JSON Schema that stands by itself, or None.

    A reference out of it, or to a part that is none, counts: nothing is ever fetched.
    """
    import jsonschema  # noqa: PLC0415 - 100 ms, for sessions with a response_format alone

    if (problem := values_problem(schema)) is not None:
        return one_line(f"no JSON: {problem}", PROBLEM_CHARS_MAX)
    kind = validator_class(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        return one_line(f"no JSON Schema: {error.message} at {error.json_path}", PROBLEM_CHARS_MAX)
    except (ValueError, OverflowError, RecursionError) as error:  # a pattern that re cannot take
        return one_line(f"no JSON Schema: {error}", PROBLEM_CHARS_MAX)
    problem = reference_problem(kind, schema)
    return None if problem is None else one_line(f"the schema {problem}", PROBLEM_CHARS_MAX)


def _told(make: Any) -> Schema:  # Any: a maker of schemas, the library's or the application's
    try:
        made = make()
    except Exception as error:  # the class of an application may do anything
        raise TypeError(
            one_line(f"this type has no JSON Schema: {reason_of(error)}", PROBLEM_CHARS_MAX)
        ) from error
    if not isinstance(made, dict):
        raise TypeError(f"model_json_schema() gave {type(made).__name__}, not a dict")
    return made


def validator_class(schema: Schema) -> Any:  # Any: jsonschema makes these classes
    """Return the validator class of the draft that ``schema`` names, else of the newest."""
    import jsonschema.validators  # noqa: PLC0415 - as above

    default = jsonschema.Draft202012Validator
    try:
        return jsonschema.validators.validator_for(schema, default=default)
    except (AttributeError, TypeError, ValueError):  # "$schema" is no address at all
        return default
