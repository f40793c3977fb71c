"""``cmdc plugins``: the built-in plugins, all in a table or one at length; no daemon is asked."""

import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from cmdc_runtime.cli.choices import json_option
from cmdc_runtime.cli.terminal import Terminal, json_line, show_table
from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import nearest

if TYPE_CHECKING:
    from cmdc_runtime.plugins.catalogue import OptionFacts, PartFacts, PluginFacts

_ALL: Final = "all hooks"
_INDENT: Final = "  "
_DEFAULT_CHARS_MAX: Final = 24
"""Of a default in the table; the page of one plugin has all of it."""
_COLUMNS: Final[Mapping[str, Callable[["PluginFacts"], str]]] = {
    "PLUGIN": lambda one: one.name,
    "PRIORITY": lambda one: str(one.priority),
    "FAIL": lambda one: one.fail,
    "HOOKS": lambda one: ", ".join(_hooks(one)),
    "OPTIONS": lambda one: ", ".join(map(_short, one.options)) or "-",
}


@click.command()
@click.argument("name", required=False)
@json_option
def plugins(*, name: str | None, as_json: bool) -> None:
    """List the built-in plugins, or describe one; with --json as an array or an object."""
    from cmdc_runtime.plugins.catalogue import built_in_plugins  # noqa: PLC0415 - not always needed

    found = sorted(built_in_plugins(), key=lambda one: (one.priority, one.name))
    chosen = None if name is None else _chosen(name, found)
    if as_json:
        Terminal().line(json_line(found if chosen is None else chosen))
    elif chosen is None:
        show_table(_COLUMNS, found)
    else:
        terminal = Terminal()
        for line in _lines(chosen):
            terminal.line(_wrapped(line) if terminal.is_live else line)


def _chosen(name: str, found: "list[PluginFacts]") -> "PluginFacts":
    """Return the plugin of this name, be it the short one or that of its class."""
    for one in found:
        if name in (one.name, one.reference):
            return one
    near = nearest(name, (one.name for one in found))
    hint = "`cmdc plugins` lists them" if near is None else f"do you mean {near}?"
    raise click.UsageError(f"there is no built-in plugin {name!r}: {hint}")


def _hooks(plugin: "PluginFacts") -> list[str]:
    """Return the names of the plugin's hooks; all hooks in two words."""
    from cmdc_runtime.extensions.hooks import HOOKS  # noqa: PLC0415 - not always needed

    names = [method.name for method in plugin.methods]
    if not set(HOOKS) <= set(names):
        return names
    return [_ALL, *(name for name in names if name not in HOOKS)]


def _lines(plugin: "PluginFacts") -> Iterator[str]:
    """Yield what there is to know about one plugin."""
    yield f"{plugin.name}  cmdc.plugins.{plugin.reference}"
    yield from ("", plugin.meaning, "")
    yield f"priority {plugin.priority}, fail {plugin.fail}"
    yield f"events   {', '.join(plugin.emits) or 'none of its own'}"
    yield from ("", "hooks")
    width = max(len(method.name) for method in plugin.methods)
    for method in plugin.methods:
        yield f"{_INDENT}{method.name:<{width}}  {method.meaning}"
    yield from ("", "options" if plugin.options else "no options")
    for option in plugin.options:
        yield from _option(option)
    for part in plugin.parts:
        yield from _part(part)


def _option(option: "OptionFacts") -> Iterator[str]:
    default = "required" if option.default is None else f"= {option.default}"
    bound = f"  ({option.bound})" if option.bound else ""
    yield f"{_INDENT}{option.name}: {option.type}  {default}{bound}"
    if option.meaning:
        yield f"{_INDENT * 3}{option.meaning}"


def _part(part: "PartFacts") -> Iterator[str]:
    yield from ("", f"{part.name}  {part.module}", f"{_INDENT}{part.meaning}")
    for option in part.options:
        yield from _option(option)


def _short(option: "OptionFacts") -> str:
    if option.default is None:
        return option.name
    return f"{option.name}={one_line(option.default, _DEFAULT_CHARS_MAX)}"


def _wrapped(line: str) -> str:
    """Return a line as lines of the terminal's width, the later ones indented a little more."""
    indent = line[: len(line) - len(line.lstrip())]
    columns = shutil.get_terminal_size().columns
    return textwrap.fill(line, columns, subsequent_indent=indent + _INDENT)
