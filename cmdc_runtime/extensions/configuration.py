"""Options of a plugin against its ``Config``: every problem at once, each with its option."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cmdc_runtime.errors import InvalidOptions


def config_of(
    plugin: str,
    config: type[msgspec.Struct],
    given: Mapping[str, Any],  # Any: options as they come
) -> msgspec.Struct:
    """Return the options of ``plugin`` as its ``config`` says, defaults filled in.

    What the types of the fields convert to is taken: a list is as good as a set or a tuple.

    Raises:
        InvalidOptions: options are missing, unknown or wrong; it names each.
    """
    try:
        fields = {field.name: field for field in msgspec.structs.fields(config)}
    except (NameError, TypeError) as error:
        raise InvalidOptions([f"plugin {plugin!r}: its Config cannot be read: {error}"]) from error
    problems = [
        f"plugin {plugin!r}: there is no option {name!r}, only {', '.join(fields) or 'none at all'}"
        for name in given
        if name not in fields
    ]
    values = {}
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(f"plugin {plugin!r}: option {name!r} is missing")
            continue
        try:
            values[name] = msgspec.convert(given[name], field.type)
        except (msgspec.ValidationError, TypeError) as error:
            problems.append(f"plugin {plugin!r}: option {name!r}: {error}")
    if problems:
        raise InvalidOptions(problems)
    try:
        return config(**values)
    except (TypeError, ValueError) as error:  # its __post_init__ refused them together
        raise InvalidOptions([f"plugin {plugin!r}: {error}"]) from error
