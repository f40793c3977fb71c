"""``cmdc approve``, ``reject`` and ``respond``: answers for a session that waits."""

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client, text_of
from cmdc_runtime.cli.terminal import Terminal, json_line
from cmdc_runtime.commands import ApprovalKind


@click.command()
@click.argument("session")
@click.argument("approval_id", metavar="ID")
@click.option("--always", is_flag=True, help="Allow every later call of the tool as well.")
@click.option("--no-resume", is_flag=True, help="Open no cycle for the call if none runs.")
@json_option
@address_option
def approve(  # noqa: PLR0913 - click hands over each option
    session: str,
    approval_id: str,
    *,
    always: bool,
    no_resume: bool,
    as_json: bool,
    address: str | None,
) -> None:
    """Allow the call of SESSION that waits for approval ID, and let the agent make it."""
    kind: ApprovalKind = "approve_always" if always else "approve_once"
    with running_client(address) as client:
        client.approve(session, approval_id, auto_resume=not no_resume, kind=kind)
    outcome = {"session_id": session, "approval_id": approval_id, "decision": kind}
    Terminal().line(json_line(outcome) if as_json else f"allowed {approval_id}")


@click.command()
@click.argument("session")
@click.argument("approval_id", metavar="ID")
@click.option("--resume", is_flag=True, help="Open a cycle for it, if none runs.")
@json_option
@address_option
def reject(
    session: str, approval_id: str, *, resume: bool, as_json: bool, address: str | None
) -> None:
    """Refuse the call of SESSION that waits for approval ID."""
    with running_client(address) as client:
        client.reject(session, approval_id, auto_resume=resume)
    outcome = {"session_id": session, "approval_id": approval_id, "decision": "reject"}
    Terminal().line(json_line(outcome) if as_json else f"refused {approval_id}")


@click.command()
@click.argument("session")
@click.argument("ref")
@click.argument("text")
@json_option
@address_option
def respond(session: str, ref: str, text: str, *, as_json: bool, address: str | None) -> None:
    """Answer the question REF of SESSION with TEXT; ``-`` reads it from standard input."""
    with running_client(address) as client:
        client.user_respond(session, ref, text_of(text))
    outcome = {"session_id": session, "ref": ref, "answered": True}
    Terminal().line(json_line(outcome) if as_json else f"answered {ref}")
