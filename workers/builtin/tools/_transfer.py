"""``transfer``: what stands for a handoff in a session; a call of it says that it is wanted.

The session makes the handoff when the calls beside this one have ended: see its tables.
"""

from typing import Any

from cmdc_runtime.extensions import Context, Tool


class Transfer(Tool):
    """The way to one agent."""

    isolation = "task"
    effects = "read"

    def __init__(self, agent: str, name: str, about: str) -> None:
        """Lead to ``agent``; ``about`` is what it is good for."""
        self.name = name
        self.description = f"Hand the conversation over to {agent}, who goes on with it: {about}"
        self._agent = agent

    def meta(self, args: dict[str, Any]) -> str:  # noqa: ARG002 - it takes none
        """Return a few words for people."""
        return f"Hand over to {self._agent}"

    async def execute(self, args: dict[str, Any], context: Context) -> str:  # noqa: ARG002 - as above
        """Return what the model reads that goes on."""
        return f"The conversation is handed over to {self._agent}, who goes on from here."


def create(agent: str, name: str, about: str) -> Tool:
    """Return the tool."""
    return Transfer(agent, name, about)
