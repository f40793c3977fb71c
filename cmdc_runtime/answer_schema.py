"""JSON Schemas of tools and answers: what one may hold and refer to, and ``response_format``.

A provider gets a schema as JSON, and the journal keeps it as MessagePack. What one of them has no
form for (nan, an infinity, an integer beyond 64 bits, half a surrogate pair, bytes, a set, a key
that is no text) or nests too deep for either is reported here, where somebody can mend it, not by a
request that fails again and again. What a schema refers to is found where it is defined, and never
fetched: ``reference_problem`` is the one check, of a tool's parameters as of an answer's form.
``mismatches`` asks it too where a value cannot be checked: a schema may be older than the check.

As ``response_format`` a dict is a JSON Schema by itself, of the draft that its ``$schema`` names,
else of 2020-12. A class with ``model_json_schema`` is one of pydantic's, as is what has a part of
that library's; everything else is a type for msgspec. To take one more kind of type, add it to
``schema_and_reader``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cmdc_runtime.bounded_check import CheckTooLongError, bounded
from cmdc_runtime.foreign_types import holds_models, unheeded
from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import TOO_DEEP, json_problem, reason_of, short, unread_reason

# --- values ---------------------------------------------------------------------------------------

_OUT: Final = "leave it out; a default can be None, which the code then replaces"
_OUT_OF_DEPTH: Final = 'name its parts under "definitions" or "$defs" and refer to them'


def values_problem(schema: object) -> str | None:
    """Return what of ``schema`` cannot be sent, with its place and the way out, or None."""
    problem = json_problem(schema)
    if problem is None:
        return None
    return f"{problem}; {_OUT_OF_DEPTH if problem == TOO_DEEP else _OUT}"


# --- references -----------------------------------------------------------------------------------

_WORDS: Final = ("$ref", "$dynamicRef")
"""What refers to another schema; not every draft has both."""


class UncheckableError(Exception):
    """A value can't be held against a schema; the text says what of the schema is at fault."""


def reference_problem(kind: Any, schema: object) -> str | None:
    """Return which reference leads to no schema, and to what instead, or None.

    ``kind`` is the class of validators (Any: jsonschema makes these) that has checked ``schema``
    itself. What a reference leads to is looked through too.
    """
    specification = _specification_of(kind)
    root = specification.create_resource(schema)
    waiting = [(root, _registry().resolver_with_root(root))]
    seen: set[int] = set()
    while waiting:
        resource, resolver = waiting.pop()
        if id(resource.contents) in seen:
            continue
        seen.add(id(resource.contents))
        for reference in _references(kind, resource.contents):
            try:
                found = _found(kind, reference, resolver, resource.contents)
            except UncheckableError as error:
                return str(error)
            waiting.append((specification.create_resource(found.contents), found.resolver))
        waiting += ((one, resolver.in_subresource(one)) for one in resource.subresources())
    return None


def mismatches(kind: Any, schema: Mapping[str, Any], value: object) -> list[Any]:
    """Return what ``schema`` has against ``value``, by place; ``kind`` is a class of validators.

    ``Any``: jsonschema makes these classes. Nothing is fetched from the network.

    Raises:
        UncheckableError: what the schema refers to is nowhere, no schema, or without an end.
    """
    validator = kind(schema, registry=_registry())
    try:
        return sorted(validator.iter_errors(value), key=lambda error: error.json_path)
    except CheckTooLongError:
        raise
    except Exception as error:  # a value in the place of a schema fails in any way
        problem = reference_problem(kind, schema)
        if problem is None and isinstance(error, RecursionError):
            problem = "refers to what is nested too deeply to be checked"
        problem_text = problem or f"refers to what is no schema: {reason_of(error)}"
        raise UncheckableError(problem_text) from error


def _references(kind: Any, schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for word in _WORDS:
            if word in kind.VALIDATORS and isinstance(reference := schema.get(word), str):
                yield reference


def _found(kind: Any, reference: str, resolver: Any, schema: object) -> Any:
    """Return what a reference of ``schema`` leads to, with its resolver (Any: of referencing).

    Raises:
        UncheckableError: it is no schema.
    """
    import referencing.exceptions  # noqa: PLC0415 - comes with jsonschema

    try:
        found = resolver.lookup(reference)
        kind.check_schema(found.contents)
        is_endless = _is_endless(found, schema)
    except referencing.exceptions.Unresolvable as error:
        raise UncheckableError(f"refers to {short(reference)}, which is nowhere") from error
    except Exception as error:  # an address that is none, or a way through what is no schema
        raise UncheckableError(f"refers to {short(reference)}, which is no schema") from error
    if is_endless:
        raise UncheckableError(f"refers to {short(reference)}, which refers to itself")
    return found


def _is_endless(found: Any, schema: object) -> bool:
    """Say whether one reference after the other leads back to where it was before."""
    passed = {id(schema)}
    while isinstance(found.contents, Mapping) and isinstance(found.contents.get("$ref"), str):
        if id(found.contents) in passed:
            return True
        passed.add(id(found.contents))
        found = found.resolver.lookup(found.contents["$ref"])
    return False


def _registry() -> Any:
    """Return what schemas may refer to beside themselves: the drafts of JSON Schema alone."""
    import jsonschema_specifications  # noqa: PLC0415 - comes with jsonschema

    # A registry of its own keeps a validator from fetching a "$ref".
    return jsonschema_specifications.REGISTRY


def _specification_of(kind: Any) -> Any:
    import referencing.jsonschema  # noqa: PLC0415 - as above

    dialect = kind.ID_OF(kind.META_SCHEMA)
    return referencing.jsonschema.specification_with(
        dialect, default=referencing.jsonschema.DRAFT202012
    )


# --- the form of an answer ------------------------------------------------------------------------

Schema = dict[str, Any]  # Any: JSON
Reader = Callable[[bytes], Any]  # Any: a value of the type

PROBLEMS_MAX: Final = 5
"""So many problems of one value go to the model; the first one usually explains the rest."""
PROBLEM_CHARS_MAX: Final = 280
"""Of each of them."""
FORM_BYTES_MAX: Final = 2**20
"""Of a schema that travels with a prompt or a task, as MessagePack."""


def _one_line(text: str) -> str:
    return one_line(text, PROBLEM_CHARS_MAX)


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
        return _made_by(of_pydantic)
    return _made_by(lambda: schema_and_reader(response_format)[0])


def schema_and_reader(kind: Any) -> tuple[Schema, Reader]:
    """Return the JSON Schema of a type, and what makes a value of it of JSON.

    What pydantic has any part in is read by that. It raises what these two libraries do.
    """
    of_pydantic = getattr(kind, "model_json_schema", None)
    if callable(of_pydantic):
        return of_pydantic(), kind.model_validate_json
    if unheeded(kind, set()) is None:
        try:
            return msgspec.json.schema(kind), msgspec.json.Decoder(kind).decode
        except TypeError:  # it has a part of pydantic's, or none has a form for it
            if not holds_models(kind, set()):
                raise
    import pydantic  # noqa: PLC0415 - optional; who has such a type has it

    adapter: Any = pydantic.TypeAdapter(kind)
    return adapter.json_schema(), adapter.validate_json


def schema_problem(schema: Schema) -> str | None:
    """Say what keeps ``schema`` from being a JSON Schema that stands by itself, or None.

    A reference out of it, or to a part that is none, counts: nothing is ever fetched.
    """
    import jsonschema  # noqa: PLC0415 - 100 ms, for sessions with a response_format alone

    if (problem := values_problem(schema)) is not None:
        return _one_line(f"no JSON: {problem}")
    kind = validator_class(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        return _one_line(f"no JSON Schema: {error.message} at {error.json_path}")
    except (ValueError, OverflowError, RecursionError) as error:  # a pattern that re cannot take
        return _one_line(f"no JSON Schema: {error}")
    problem = reference_problem(kind, schema)
    return None if problem is None else _one_line(f"the schema {problem}")


def form_problem(schema: Schema) -> str | None:
    """Say what keeps ``schema`` from travelling with a request to a session, or None."""
    problem = schema_problem(schema)
    if problem is None and (size := len(msgspec.msgpack.encode(schema))) > FORM_BYTES_MAX:
        problem = f"at most {FORM_BYTES_MAX:,} bytes, got {size:,}"
    return problem


def _made_by(make: Any) -> Schema:  # Any: a maker of schemas, the library's or the application's
    try:
        made = make()
    except Exception as error:  # the class of an application may do anything
        raise TypeError(_one_line(f"this type has no JSON Schema: {reason_of(error)}")) from error
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


# --- answers --------------------------------------------------------------------------------------

_FENCE: Final = "```"
_OPENINGS: Final = {_FENCE, f"{_FENCE}json"}
_REFUSED: Final = "response_format: "
_ANSWERED: Final = "; the answer was "


def parsed_text(text: str) -> str:
    """Return the JSON text of an answer: what its one code block holds, else the whole, stripped.

    A block is taken out only where it is the only one and says ``json`` or nothing.
    """
    lines = text.split("\n")
    fences = [place for place, line in enumerate(lines) if line.lstrip().startswith(_FENCE)]
    match fences:
        case [first, last] if _is_block(lines[first], lines[last]):
            return "\n".join(lines[first + 1 : last]).strip()
    return text.strip()


def answer_problem(schema: Mapping[str, Any], text: str) -> str | None:  # Any: JSON Schema
    """Return in one line what is wrong with an answer, or None where it fits ``schema``.

    The schema was checked when the session was started. References outside of it are never fetched,
    and a check has a bound of CPU time: a pattern may take for ever on some texts.
    """
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


def repair_request(problem: str) -> str:
    """Return what the model is asked after an answer with a problem."""
    return (
        f"Your answer does not have the required format: {problem}\n\n"
        "Answer again with the same content in the required format. Write the JSON alone: no code"
        " block, no text before or after it."
    )


def refusal(problem: str, answer: str) -> str:
    """Return why a cycle fails whose last answer has a problem."""
    return f"{_REFUSED}{problem}{_ANSWERED}{short(answer)}"


def refused_problems(reason: object) -> list[str] | None:
    """Return the problems of the answer that a cycle has failed with; None: it failed otherwise."""
    if not isinstance(reason, str) or not reason.startswith(_REFUSED):
        return None
    return reason.removeprefix(_REFUSED).rpartition(_ANSWERED)[0].split("; ")


def _is_block(opening: str, closing: str) -> bool:
    return opening.strip().lower() in _OPENINGS and closing.strip() == _FENCE
