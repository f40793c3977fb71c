"""``cmdc config``: what holds for new agents, and where each value comes from; no secret is shown.

What it shows is what ``cmdc.Config.load`` returns, and what ``cmdc run`` and ``cmdc chat`` start
agents with.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click

from cmdc_runtime.cli.choices import agent_config, json_option
from cmdc_runtime.cli.terminal import Terminal, json_line, show_table
from cmdc_runtime.config import config_rows


class _Row(NamedTuple):
    """A field, what may be shown of its value, and where that comes from."""

    name: str
    value: Any  # Any: the field's own
    source: str


_COLUMNS: Final[Mapping[str, Callable[[_Row], str]]] = {
    "NAME": lambda one: one.name,
    "VALUE": lambda one: one.value if isinstance(one.value, str) else json_line(one.value),
    "FROM": lambda one: one.source,
}


@click.command()
@click.option(
    "--file",
    metavar="FILE",
    help="A TOML file.  [default: $CMDC_AGENT_CONFIG, else cmdc/config.toml in ~/.config]",
)
@json_option
def config(*, file: str | None, as_json: bool) -> None:
    """Show what holds for new agents, and where each value comes from."""
    rows = [_Row(*row) for row in config_rows(agent_config(file))]
    if as_json:
        for row in rows:
            Terminal().line(json_line(row._asdict()))
    else:
        show_table(_COLUMNS, rows)
