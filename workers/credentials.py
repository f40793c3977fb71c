"""The credentials that an agent's process knows: no failure that is told here shows one of them.

They are the options of the session's provider, those of earlier models too, what has a telling name
or lies in headers among the options of plugins and tools and in ``user_data``, and the variables of
the environment that say so. They are looked for when something has failed, as they are then.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime import foreign, hiding
from cmdc_runtime.likeness import ALIKE_CHARS_MIN
from cmdc_runtime.parcels import Packed
from cmdc_runtime.spec import AgentSpec
from workers.core.state import Memory

_READABLE: Final = "ref"
"""The kind of parcels whose options anybody can read; the others are code."""


def keep(spec: AgentSpec, memory: Memory | Callable[[], Memory] | None = None) -> None:
    """Hide the credentials of a session in all failures that this process tells from now on.

    ``memory`` is what is known of it so far, or returns what is known later on.
    """

    def hide(text: str) -> str:
        now = memory() if callable(memory) else memory
        return hiding.hidden(text, known(spec, now))

    foreign.hide_by(hide)


def known(spec: AgentSpec, memory: Memory | None) -> frozenset[str]:
    """Return what is hidden now, in every form; ``memory`` is None before there is one."""
    model, opts = spec.model, [spec.provider_opts]
    parcels = [*spec.tools, *spec.plugins]
    for one in spec.subagents:
        opts.append(one.provider_opts or {})
        parcels += (*(one.tools or ()), *(one.plugins or ()))
    if memory is not None:
        model = memory.model
        opts += [memory.provider_opts, *memory.former_opts]
        known_parcels = [tool.packed for tool in memory.tools]
        known_parcels += [plugin.packed for plugin in memory.plugins]
        parcels += filter(None, known_parcels)
    named = hiding.secrets_by_name((spec.user_data, *_options_of(parcels)))
    given = hiding.secrets_of_options(opts) | named
    variables = {
        value for value in hiding.secrets_of_environment(os.environ) if not _is_path(value)
    }
    return hiding.forms_of(
        one for one in given | variables if one == hiding.ALL or not (one in model or _is_word(one))
    )


def _options_of(parcels: Iterable[Packed]) -> Iterator[object]:
    for one in parcels:
        if one.kind == _READABLE and one.data is not None:
            yield msgspec.msgpack.decode(one.data)


def _is_word(value: str) -> bool:
    """Say whether it is what stands for a key where none is needed, such as ``local`` or ``123``.

    Failures of tools and plugins are prose, which would not be readable without such words.
    """
    is_plain = value.isdecimal() or (value.isalpha() and value.islower())
    return is_plain and len(value) < ALIKE_CHARS_MIN


def _is_path(value: str) -> bool:
    """Say whether a variable names a file with a key in it: each traceback has parts of paths."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False
