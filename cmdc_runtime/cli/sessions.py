"""What lives now, and one word to it.

``cmdc ps``, ``tree``; ``prompt``, ``steer``, ``abort``, ``stop``, ``model``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

from cmdc_runtime.cli.choices import (
    address_option,
    json_option,
    provider_opt_option,
    provider_opts_of,
    running_client,
    running_engine,
    text_of,
)
from cmdc_runtime.cli.terminal import Terminal, TreeRow, json_line, show_table, show_tree
from cmdc_runtime.lines import duration, one_line

if TYPE_CHECKING:
    from cmdc_runtime.commands import Status
    from cmdc_runtime.requests import TreeNode

# --- one word to a session ------------------------------------------------------------------------

STOP_TIMEOUT_S_MAX = 3600.0


@click.command()
@click.argument("session")
@click.argument("text")
@json_option
@address_option
def prompt(session: str, text: str, *, as_json: bool, address: str | None) -> None:
    """Send TEXT to SESSION and return when it cannot be lost any more; ``-`` reads it from stdin.

    `cmdc tail SESSION` shows what comes of it.
    """
    with running_client(address) as client:
        receipt = client.prompt(session, text_of(text))
    said = "queued behind the running cycle" if receipt.queued else "accepted"
    Terminal().line(json_line(receipt) if as_json else said)


@click.command()
@click.argument("session")
@click.argument("text")
@json_option
@address_option
def steer(session: str, text: str, *, as_json: bool, address: str | None) -> None:
    """Guide the running cycle of SESSION with TEXT; ``-`` reads it from stdin.

    The model reads it when the calls that can be ended are; to an idle session it is a prompt.
    """
    with running_client(address) as client:
        ref = client.steer(session, text_of(text))
    outcome = {"session_id": session, "ref": ref}
    Terminal().line(json_line(outcome) if as_json else f"accepted as {ref}")


@click.command()
@click.argument("session")
@click.option("--reason", help="The reason that observers get.")
@json_option
@address_option
def abort(session: str, *, reason: str | None, as_json: bool, address: str | None) -> None:
    """End the running cycle of SESSION and drop the prompts that wait; the session stays."""
    with running_client(address) as client:
        client.abort(session, reason=reason)
    outcome = {"session_id": session, "aborted": True}
    Terminal().line(json_line(outcome) if as_json else f"aborted {session}")


@click.command()
@click.argument("session")
@click.option("--reason", default="normal", show_default=True, help="The reason that monitors get.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, STOP_TIMEOUT_S_MAX),
    default=5.0,
    show_default=True,
    help="Seconds until it is killed.",
)
@json_option
@address_option
def stop(session: str, *, reason: str, timeout: float, as_json: bool, address: str | None) -> None:
    """End SESSION and return when its process is gone."""
    with running_client(address) as client:
        client.stop(session, reason=reason, timeout=timeout)
    outcome = {"session_id": session, "stopped": True}
    Terminal().line(json_line(outcome) if as_json else f"stopped {session}")


@click.command()
@click.argument("session")
@click.argument("model", metavar="PROVIDER:MODEL")
@provider_opt_option
@json_option
@address_option
def model(
    session: str,
    model: str,
    *,
    provider_opts: tuple[str, ...],
    as_json: bool,
    address: str | None,
) -> None:
    """Send the next request of SESSION to another model.

    Without --provider-opt the options in force stay; with it they are replaced as a whole.
    """
    opts = provider_opts_of(provider_opts) or None
    with running_client(address) as client:
        client.switch_model(session, model, provider_opts=opts)
    outcome = {"session_id": session, "model": model}
    Terminal().line(json_line(outcome) if as_json else f"{session} uses {model} from now on")


# --- what lives now -------------------------------------------------------------------------------


def _left(shown: Callable[["Status"], str]) -> Callable[["Status"], str]:
    """Show of a session what its agent reports, ``-`` where none has: it names its model always."""
    return lambda one: shown(one) if one.model else "-"


_COLUMNS: Final[Mapping[str, Callable[["Status"], str]]] = {
    "SESSION": lambda one: one.session_id,
    "STATE": lambda one: one.state,
    "PID": lambda one: "-" if one.pid is None else str(one.pid),
    "MODEL": _left(lambda one: one_line(one.model)),
    "TURNS": _left(lambda one: str(one.turns)),
    "QUEUED": _left(lambda one: str(one.queued_prompts)),
    "TOKENS": _left(lambda one: str(one.total_tokens)),
    "COST": lambda one: "-" if one.cost_usd is None else f"${one.cost_usd:.4f}",
    "RESTARTS": lambda one: str(one.restarts),
    "UP": _left(lambda one: duration(one.uptime_ms)),
}
_ALL_COLUMNS: Final = {
    **_COLUMNS,
    "REASON": lambda one: "-" if one.reason is None else one_line(one.reason),
}


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Also what is parked, and what ended lately.")
@json_option
@address_option
def ps(*, is_all: bool, as_json: bool, address: str | None) -> None:
    """List the live sessions; with --json as one array.

    A parked session is one that the daemon can't go on with: all that is kept of it stays until
    `cmdc resume` goes on with it or `cmdc stop` ends it. The column REASON says why. Of what ended,
    also before the daemon began, the newest are shown while the journal keeps them (retain_days). A
    column that only a session's process could fill has a `-` where none answers.
    """
    with running_engine(address) as engine:
        found = engine.call(engine.exchange.list_sessions())
        if is_all:
            found += engine.call(engine.exchange.list_inactive())
    found.sort(key=lambda one: one.session_id)
    if as_json:
        Terminal().line(json_line(found))
        return
    if not found:
        Terminal().note("no sessions")
        return
    show_table(_ALL_COLUMNS if is_all else _COLUMNS, found)


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
        show_tree(_row(root))


def _row(node: "TreeNode") -> TreeRow:
    return TreeRow(_label(node), map(_row, node.children))


def _label(node: "TreeNode") -> str:
    facts = (
        node.state,
        node.strategy,
        node.restart,
        "" if node.pid is None else f"pid {node.pid}",
        f"{node.restarts} restarts" if node.restarts else "",
    )
    return f"{node.id}  {', '.join(fact for fact in facts if fact)}"
