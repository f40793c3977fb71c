"""People in the loop: the agent asks a question, and a dangerous call waits for your leave.

CMDC_MODEL=openai:gpt-4o-mini python examples/03_approval.py
"""

import os
import tempfile
from pathlib import Path

import cmdc_runtime as cmdc
from cmdc_runtime import events


@cmdc.tool(needs_approval=True, meta=lambda args: f"delete {args['name']}")
def delete_file(name: str, context: cmdc.Context) -> str:
    """Delete a file of the working folder."""
    Path(context.working_dir, name).unlink()
    return f"{name} is deleted"


with tempfile.TemporaryDirectory() as folder:
    for name in ("draft.txt", "final.txt"):
        Path(folder, name).write_text(name)

    with cmdc.create_agent(
        model=os.environ["CMDC_MODEL"],
        tools=[delete_file, cmdc.tools.AskUser],
        working_dir=folder,
    ) as session:
        ask = "There are draft.txt and final.txt. Ask me which one to delete, and do it."
        for event in session.stream_events(ask):
            match event:
                # The call runs and waits for the answer.
                case events.AskUser(question=question, options=options, ref=ref):
                    session.user_respond(ref, input(f"{question} {list(options)} "))
                # The call did not run, and the cycle is over. An approval opens one in which the
                # model makes the call; so does this rejection, for the model to hear of it.
                case events.ApprovalRequired(id=approval_id, hint=hint):
                    if input(f"May I {hint}? [y/n] ") == "y":
                        session.approve(approval_id)
                    else:
                        session.reject(approval_id, auto_resume=True)
                case _:
                    pass
        print(f"\n{session.collect_reply()}")
    print(f"Left: {sorted(path.name for path in Path(folder).iterdir())}")
