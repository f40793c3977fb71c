"""Turns what travelled back into tools: the one place that unpickles.

``read_file`` means ``create`` in ``workers.builtin.tools.read_file``; ``module:name`` is what it
says. There is no list of built-ins to keep: a new module in that folder is a new name.
"""

import pickle
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from cmdc_runtime.extensions.provider import Provider
from cmdc_runtime.extensions.tool import Tool, as_tool, resolve
from cmdc_runtime.packing import Packed
from workers.builtin import providers as built_in_providers
from workers.builtin import tools as built_in_tools

BUILT_IN: Final = built_in_tools.__name__
PROVIDERS: Final = built_in_providers.__name__


class LoadError(Exception):
    """A tool cannot be made here; the message names it, the module and what is missing."""

    def __init__(self, label: str, message: str) -> None:
        """Keep both parts; together they are the message."""
        self.label = label
        self.message = message
        super().__init__(f"tool {label!r} cannot be loaded: {message}")


def load_tools(parcels: Sequence[Packed]) -> tuple[Tool, ...]:
    """Return the tools in their order, each checked.

    Raises:
        LoadError: one cannot be loaded, is no tool, or has the name of an earlier one.
    """
    tools: dict[str, Tool] = {}
    for packed in parcels:
        tool = _load_tool(packed)
        if tool.name in tools:
            raise LoadError(packed.label, f"another tool is named {tool.name!r} too")
        tools[tool.name] = tool
    return tuple(tools.values())


def load_provider(name: str) -> Provider:
    """Return a new provider: ``litellm`` means ``create`` in ``workers.builtin.providers.litellm``.

    Raises:
        LoadError: there is none of this name, or it can't be made here.
    """
    try:
        created: Provider = resolve(f"{PROVIDERS}.{name}:create")()  # type: ignore[operator]
    except (ImportError, AttributeError) as error:
        raise LoadError(name, _explain(error)) from error
    return created


def unpack(packed: Packed) -> object:
    """Return what was packed.

    Raises:
        LoadError: for whatever the code raised, ``SystemExit`` included.
    """
    _check_python(packed)
    try:
        if packed.kind == "value":
            return pickle.loads(packed.data or b"")  # noqa: S301 - the code the user asked us to run
        return _referred(packed)
    except BaseException as error:  # foreign code runs here, and may even call sys.exit()
        raise LoadError(packed.label, _explain(error)) from error


def _load_tool(packed: Packed) -> Tool:
    thing = unpack(packed)
    try:
        return as_tool(thing)
    except BaseException as error:  # a tool's class is foreign code too
        raise LoadError(packed.label, _explain(error)) from error


def _referred(packed: Packed) -> object:
    reference = packed.ref or ""
    if ":" in reference:
        return resolve(reference)
    if reference not in _built_in_names():
        names = ", ".join(sorted(_built_in_names()))
        raise LookupError(f"there is no built-in tool {reference!r}, only {names}")
    create: Callable[..., object] = _factory(reference)
    options: dict[str, Any] = msgspec.msgpack.decode(packed.data) if packed.data else {}
    return create(**options)


def _factory(name: str) -> Any:  # Any: create() of a built-in, with arguments of its own
    return resolve(f"{BUILT_IN}.{name}:create")


def _built_in_names() -> set[str]:
    found = pkgutil.iter_modules(built_in_tools.__path__)
    return {module.name for module in found if not module.name.startswith("_")}


def _check_python(packed: Packed) -> None:
    here = sys.version_info[:2]
    if packed.python is not None and packed.python != here:
        raise LoadError(
            packed.label,
            f"its code was packed by Python {packed.python[0]}.{packed.python[1]}, and agents run"
            f" {here[0]}.{here[1]}: use the daemon's version, or install the tool as a package"
            ' there and give "module:name"',
        )


def _explain(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; install it where the daemon runs"
    if isinstance(error, ImportError | AttributeError):
        return f"{error}; is another version installed where the daemon runs?"
    if isinstance(error, SystemExit):
        return f"its code called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"
