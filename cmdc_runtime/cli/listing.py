"""``cmdc ps`` and ``cmdc tree``: what lives now."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client
from cmdc_runtime.cli.terminal import Terminal, console, show_table
from cmdc_runtime.cli.text import duration, json_line, neutral, one_line

if TYPE_CHECKING:
    from rich.tree import Tree

    from cmdc_runtime.commands import Status
    from cmdc_runtime.requests import TreeNode

_COLUMNS: Final[Mapping[str, Callable[["Status"], str]]] = {
    "SESSION": lambda one: one.session_id,
    "STATE": lambda one: one.state,
    "PID": lambda one: "-" if one.pid is None else str(one.pid),
    "MODEL": lambda one: one_line(one.model),
    "TURNS": lambda one: str(one.turns),
    "QUEUED": lambda one: str(one.queued_prompts),
    "TOKENS": lambda one: str(one.total_tokens),
    "COST": lambda one: "-" if one.cost_usd is None else f"${one.cost_usd:.4f}",
    "RESTARTS": lambda one: str(one.restarts),
    "UP": lambda one: duration(one.uptime_ms),
}


@click.command()
@json_option
@address_option
def ps(*, as_json: bool, address: str | None) -> None:
    """List the live sessions; with --json as one array."""
    with running_client(address) as client:
        found = sorted(client.list_sessions(), key=lambda one: one.session_id)
    if as_json:
        Terminal().line(json_line(found))
        return
    if not found:
        Terminal().note("no sessions")
        return
    show_table(_COLUMNS, found)


@click.command()
@json_option
@address_option
def tree(*, as_json: bool, address: str | None) -> None:
    """Show the supervision tree."""
    with running_client(address) as client:
        root = client.tree()
    if as_json:
        Terminal().line(json_line(root))
    else:
        console().print(_drawn(root), soft_wrap=True)


def _drawn(node: "TreeNode", into: "Tree | None" = None) -> Any:  # Any: rich is loaded here
    from rich.text import Text  # noqa: PLC0415 - slow, and not always needed
    from rich.tree import Tree  # noqa: PLC0415

    label = Text(_label(node))
    branch = Tree(label) if into is None else into.add(label)
    for child in node.children:
        _drawn(child, branch)
    return branch


def _label(node: "TreeNode") -> str:
    facts = (
        node.state,
        node.strategy,
        node.restart,
        "" if node.pid is None else f"pid {node.pid}",
        f"{node.restarts} restarts" if node.restarts else "",
    )
    return f"{neutral(node.id)}  {', '.join(fact for fact in facts if fact)}"
