"""A plugin that writes every prompt down, in a file, and publishes it: ``Emit``.

It runs as it is, with a model that plays a script; CMDC_MODEL=openai:gpt-4o-mini names a real one.

python examples/plugins/02_prompt_audit.py
"""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ScriptedModel


class PromptAudit(cmdc.Plugin):
    """Appends a line of JSON to a file for each prompt, before the model hears of it."""

    priority = 200
    fail = "closed"  # what cannot be written down is not asked
    emits = ("prompt_audited",)

    class Config(msgspec.Struct, frozen=True):
        """The file; it is required, as it has no default."""

        file: str

    # A plain ``def`` runs in a thread, so it may wait for the disk.
    def before_prompt(self, event: cmdc.BeforePrompt, context: cmdc.PluginContext) -> cmdc.Emit:
        """Write the text into the file, and only its length into the event."""
        line = {"at": datetime.now(UTC), "session": context.session_id, "prompt": event.text}
        with Path(self.config.file).open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        return cmdc.Emit("prompt_audited", {"chars": len(event.text)})


SCRIPT = ScriptedModel(["Four.", "Five."])

with (
    SCRIPT,
    tempfile.TemporaryDirectory() as folder,
    cmdc.create_agent(
        model=os.environ.get("CMDC_MODEL") or SCRIPT,
        plugins=[(PromptAudit, {"file": f"{folder}/prompts.jsonl"})],
        user_data={"tenant": "acme"},  # comes with every event of a plugin
    ) as session,
):
    before = session.last_index()
    for prompt in ("What is 2 + 2?", "And 2 + 3?"):
        print(f"{prompt} {session.run(prompt).text}")
    stream = session.subscribe(since=before, types=["plugin_event"])
    for envelope in (stream.get(timeout=10), stream.get(timeout=10)):
        assert isinstance(envelope.event, events.PluginEvent)
        print(envelope.event.name, envelope.event.payload)
    for line in Path(folder, "prompts.jsonl").read_text().splitlines():
        print(line)
