"""``plugins.md``: the built-in plugins, when each is asked, and what it publishes."""

from collections.abc import Iterable, Iterator
from typing import Final

from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.plugins.catalogue import MethodFacts, OptionFacts, PartFacts, PluginFacts
from scripts.reference import markdown
from scripts.reference.built_in_plugins import facts

_INTRO: Final = (
    "The plugins that come with the project, for `plugins=[cmdc.plugins.CostGuard(max_cost_usd=1)]`"
    ' or by name, `plugins=[("cost_guard", {"max_cost_usd": 1})]`. Plugins are asked by'
    " priority, small first. `fail` says what an error of the plugin means: `open` goes on without"
    " its answer, `closed` aborts the cycle where the hook allows it, `disable` asks the plugin no"
    " more. Its events come to subscribers as `PluginEvent(name, payload)`. `cmdc plugins` prints"
    " the same on a terminal; [hooks.md](hooks.md) has the hooks and what may be answered at each."
)
_OVERVIEW: Final = ("plugin", "name", "priority", "fail", "hooks", "what it does")
_OPTIONS: Final = ("option", "type", "default", "bound", "meaning")
_METHODS: Final = ("asked at", "to")
_ALL: Final = "all hooks"


def page() -> str:
    """Return the page."""
    found = sorted(facts(), key=lambda plugin: (plugin.priority, plugin.name))
    overview = markdown.table(_OVERVIEW, map(_row, found))
    return markdown.page("Built-in plugins", _INTRO, overview, *map(_plugin, found))


def _row(plugin: PluginFacts) -> tuple[str, ...]:
    return (
        f"[{plugin.reference}](#{plugin.reference.lower()})",
        markdown.code(plugin.name),
        str(plugin.priority),
        plugin.fail,
        _hooks(plugin),
        plugin.sentence,
    )


def _hooks(plugin: PluginFacts) -> str:
    """Return the names of what the plugin hears; all hooks in two words."""
    names = [method.name for method in plugin.methods]
    if not set(HOOKS) <= set(names):
        return ", ".join(map(markdown.code, names))
    return ", ".join([_ALL, *(markdown.code(name) for name in names if name not in HOOKS)])


def _plugin(plugin: PluginFacts) -> str:
    events = ", ".join(map(markdown.code, plugin.emits))
    stated = f"Name `{plugin.name}`, priority {plugin.priority}, fail `{plugin.fail}`."
    blocks = [
        f"## {plugin.reference}",
        plugin.meaning,
        f"{stated} {f'Events: {events}.' if events else 'It has no events of its own.'}",
        markdown.table(_METHODS, _methods(plugin)),
        _options(plugin.options) if plugin.options else "It has no options.",
        *_parts(plugin.parts),
    ]
    return "\n\n".join(blocks)


def _methods(plugin: PluginFacts) -> Iterable[tuple[str, str]]:
    """Return a row for each method, one for all hooks where one method hears them."""
    hooks = [method for method in plugin.methods if method.name in HOOKS]
    rest = [method for method in plugin.methods if method.name not in HOOKS]
    if len(hooks) == len(HOOKS) and len({method.meaning for method in hooks}) == 1:
        hooks = [MethodFacts(name=_ALL, meaning=hooks[0].meaning)]
    return [(markdown.code(method.name), method.meaning) for method in [*hooks, *rest]]


def _options(options: tuple[OptionFacts, ...]) -> str:
    return markdown.table(_OPTIONS, map(_option, options))


def _option(option: OptionFacts) -> tuple[str, ...]:
    return (
        markdown.code(option.name),
        markdown.code(option.type),
        "required" if option.default is None else markdown.code(option.default),
        option.bound,
        option.meaning,
    )


def _parts(parts: tuple[PartFacts, ...]) -> Iterator[str]:
    """Yield a list of the Structs of each module."""
    for module in dict.fromkeys(part.module for part in parts):
        own = (_part(part) for part in parts if part.module == module)
        yield "\n".join([f"Its options are made of these, from `{module}`:", "", *own])


def _part(part: PartFacts) -> str:
    written = ", ".join(
        f"{one.name}: {one.type}{'' if one.default is None else f' = {one.default}'}"
        for one in part.options
    )
    more = ((one.name, "; ".join(filter(None, (one.bound, one.meaning)))) for one in part.options)
    stated = "".join(f" `{name}`: {text.removesuffix('.')}." for name, text in more if text)
    return f"- `{part.name}({written})`: {part.meaning}{stated}"
