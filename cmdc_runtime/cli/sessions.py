"""One word to a session: ``cmdc prompt``, ``steer``, ``abort``, ``stop``, ``model``."""

import click

from cmdc_runtime.cli.choices import (
    address_option,
    json_option,
    provider_opt_option,
    provider_opts_of,
    running_client,
    text_of,
)
from cmdc_runtime.cli.terminal import Terminal, json_line
from cmdc_runtime.errors import CmdcError, DaemonUnavailable

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
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
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
def stop(
    sessions: tuple[str, ...], *, reason: str, timeout: float, as_json: bool, address: str | None
) -> int:
    """End each SESSION and return when the processes are gone.

    One that can't be stopped is reported, and the others are stopped all the same.
    """
    terminal, failures = Terminal(), 0
    with running_client(address) as client:
        for session in dict.fromkeys(sessions):
            try:
                client.stop(session, reason=reason, timeout=timeout)
            except CmdcError as error:
                if len(sessions) == 1 or isinstance(error, DaemonUnavailable):
                    raise
                failures += 1
                terminal.note(f"{session}: {error}", "bad")
                continue
            outcome = {"session_id": session, "stopped": True}
            terminal.line(json_line(outcome) if as_json else f"stopped {session}")
    return 1 if failures else 0


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
