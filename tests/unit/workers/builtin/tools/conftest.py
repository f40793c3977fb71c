"""Where a tool is tried: a folder, a session that answers by script, and a call."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, SessionPort, ToolError


@dataclass
class ScriptedSession(SessionPort):
    """Answers every request with ``answer``, and keeps what it was asked."""

    answer: object = None
    asked: list[tuple] = field(default_factory=list)

    def emit(self, name, payload=None):
        self.asked.append(("emit", name, payload))

    async def ask_user(self, question, options=()):
        return await self._answered("ask_user", question, options)

    async def compact(self, reason):
        return await self._answered("compact", reason)

    async def delegate(self, description, subagent_type):
        return await self._answered("delegate", description, subagent_type)

    published = 0

    async def publish(self, event):
        self.asked.append(("publish", event))

    async def branch(self, branch_id, prompt, **more):
        return await self._answered("branch", branch_id, prompt, more)

    async def recall(self, run_id):
        return ()

    async def end_branch(self, branch_id):
        return await self._answered("end_branch", branch_id)

    async def _answered(self, *request):
        self.asked.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        if isinstance(self.answer, asyncio.Event):
            await self.answer.wait()
        return self.answer


@dataclass
class Workplace:
    """A folder and a session in which tools are called."""

    folder: Path
    session: ScriptedSession | None = field(default_factory=ScriptedSession)

    async def called(self, tool, **arguments):
        """Check the arguments and run the tool where it says that it runs."""
        context = Context(
            session_id="s-1",
            call_id="call-1",
            working_dir=str(self.folder),
            session=self.session,
        )
        args = tool.check(arguments)
        if tool.isolation == "task":
            return await tool.execute(args, context)
        return await asyncio.to_thread(tool.execute, args, context)

    def call(self, tool, **arguments):
        """Return the result of one call."""
        return asyncio.run(self.called(tool, **arguments))

    def failure(self, tool, **arguments):
        """Return the text of a call that fails."""
        with pytest.raises(ToolError) as caught:
            self.call(tool, **arguments)
        return str(caught.value)

    def write(self, contents):
        """Make files, with the folders they need, from contents by path."""
        for name, content in contents.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def workplace(tmp_path):
    """Return an empty folder with a session."""
    return Workplace(tmp_path)
