"""What a JSON Schema refers to: found where the schema is defined, and never fetched.

``reference_problem`` is the one check, of a tool's parameters as of an answer's form.
``mismatches`` asks it too where a value cannot be checked: a schema may be older than the check.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmdc_runtime.bounded_check import CheckTooLongError
from cmdc_runtime.plain import reason_of, short

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
        told = problem or f"refers to what is no schema: {reason_of(error)}"
        raise UncheckableError(told) from error


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
