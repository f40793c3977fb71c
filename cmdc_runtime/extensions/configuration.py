"""Options of an extension against their fields: every problem at once, each with its option."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec

from cmdc_runtime.checked_struct import misfit, no_such
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.plain import kept_numbers_problem

_S = TypeVar("_S", bound=msgspec.Struct)


def config_of(
    plugin: str,
    config: type[msgspec.Struct],
    given: Mapping[str, Any],  # Any: options as they come
) -> msgspec.Struct:
    """Return the options of ``plugin`` as its ``config`` says, defaults filled in.

    Raises:
        InvalidOptions: options are missing, unknown or wrong; it names each.
    """
    return made(f"plugin {plugin!r}", config, given, config)


def made(
    owner: str,
    config: type[msgspec.Struct],
    given: Mapping[str, Any],  # Any: options as they come
    make: Callable[..., _S],
) -> _S:
    """Return what ``make`` returns for the options of ``owner``, converted to ``config``'s types.

    What the types of the fields convert to is taken: a list is as good as a set or a tuple. A
    number in them is finite and of 64 bits, as everywhere.

    Raises:
        InvalidOptions: options are missing, unknown or wrong, or ``make`` refuses them together.
    """
    try:
        fields = {field.name: field for field in msgspec.structs.fields(config)}
    except (NameError, TypeError) as error:
        raise InvalidOptions([f"{owner}: its Config cannot be read: {error}"]) from error
    strangers = islice((name for name in given if name not in fields), PROBLEMS_MAX)
    problems = [f"{owner}: {no_such(name, [*fields], 'option')}" for name in strangers]
    values = {}
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(f"{owner}: option {name!r} is missing")
            continue
        if (problem := kept_numbers_problem(given[name])) is not None:
            place = problem if problem.startswith("[") else f": {problem}"
            problems.append(f"{owner}: option {name!r}{place}")
            continue
        try:
            values[name] = msgspec.convert(given[name], field.type)
        except (TypeError, ValueError) as error:  # a ValidationError is one
            why = misfit(str(error), field.type, given[name], name)
            problems.append(f"{owner}: option {name!r}: {why}")
    if problems:
        raise InvalidOptions(problems)
    try:
        return make(**values)
    except InvalidOptions:
        raise
    except Exception as error:  # its __post_init__ refused them together
        raise InvalidOptions([f"{owner}: {error}"]) from error
