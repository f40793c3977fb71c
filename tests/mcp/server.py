"""An MCP server for tests: ``python tests/mcp/server.py``, with ``http`` or ``sse`` and a port.

What it does beside its tools is said by variables: ``SERVER_SAYS`` goes to stderr at the start,
``SERVER_WAITS`` is a file whose appearance it waits for before it answers anything,
``SERVER_LEAVES`` has it leave behind a process that has left its group, session and environment,
``SERVER_LISTENS_LATE`` are the seconds before it begins to report other tools to who asks for it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer, mcpserver
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

POLL_S = 0.02
WAIT_S = 60.0
KEY = b"of all processes of this server.."


class LateListener(ListenHandler):
    """What happens before it listens nobody hears of."""

    async def __call__(self, context, params):
        await asyncio.sleep(float(os.environ.get("SERVER_LISTENS_LATE", "0")))  # tidy: a server
        return await super().__call__(context, params)


mcpserver.server.ListenHandler = LateListener  # the server itself is given none
server = MCPServer("tests", request_state_security=RequestStateSecurity(keys=[KEY]))
ASKED = ("Your name?", "Your age?")
VALUE = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="say.it")
def say_it(text: str) -> str:
    """Say something."""
    return text


@server.tool()
def fail(text: str) -> str:
    """Fail."""
    raise ToolError(text)


@server.tool()
def pid() -> str:
    """Return the number of the server's process."""
    return str(os.getpid())


@server.tool()
def shell(command: str) -> str:
    """Run a command line; return its exit status and what it says."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return f"{done.returncode} {done.stdout}"


@server.tool()
def variables() -> str:
    """Return the names of the environment's variables."""
    return " ".join(sorted(os.environ))


@server.tool()
def header(context: Context, name: str) -> str:
    """Return a header of the request."""
    return str(context.request_context.request.headers.get(name))


@server.tool()
def die() -> str:
    """End the server in the midst of a call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
async def slow(context: Context, until: str) -> str:
    """Report progress until a file is there."""
    await context.report_progress(1, 2, "half")
    await wait_for(until)
    return "done"


@server.tool()
def stick(path: str) -> str:
    """Be stuck: no message is read any more."""
    Path(path).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
    return "never"


@server.tool()
async def grow(context: Context, name: str, text: str = "One more.") -> str:
    """Have one more tool, or another one of its name, and announce it in the ways of both eras."""

    def more() -> str:
        return f"I am {name}"

    with contextlib.suppress(ToolError):
        server.remove_tool(name)
    server.add_tool(more, name=name, description=text)
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "grown"


class Person(BaseModel):
    """What a form asks for."""

    name: str
    age: int


def who() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


@server.tool()
async def ask(answer: Annotated[ElicitationResult[Person], Resolve(who)]) -> str:
    """Ask the user for a form."""
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
def ask_and_stick(path: str, answer: Annotated[ElicitationResult[Person], Resolve(who)]) -> str:
    """Ask the user for a form, and then do nothing for ever."""
    Path(path).write_text(answer.action)
    threading.Event().wait()
    return "never"


@server.tool()
async def ask_twice(context: Context) -> str | InputRequiredResult:
    """Ask the user for a name, and then for an age."""
    said = [one.content["value"] for one in (context.input_responses or {}).values() if one.content]
    known = [*json.loads(context.request_state or "[]"), *said]
    if len(known) == len(ASKED):
        return " ".join(known)
    form = ElicitRequestFormParams(message=ASKED[len(known)], requested_schema=VALUE)
    wanted = {f"q{len(known)}": ElicitRequest(params=form)}
    return InputRequiredResult(input_requests=wanted, request_state=json.dumps(known))


def guess() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    return Sample([message], max_tokens=5)


@server.tool()
async def sample(answer: Annotated[CreateMessageResult, Resolve(guess)]) -> str:
    """Ask the model of whoever calls."""
    return str(answer)


async def wait_for(path):
    for _ in range(round(WAIT_S / POLL_S)):
        if os.path.exists(path):  # noqa: ASYNC240, PTH110
            return
        await asyncio.sleep(POLL_S)  # tidy: a server, whose call takes until then
    raise TimeoutError(path)


def leave(path):
    """Leave a process of which nothing says whose it is; its number is in the file."""
    code = (
        "import os, sys, time; os.setsid(); os.fork() and os._exit(0);"
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-c", code, path], env={}).wait()
    never = threading.Event()
    while not Path(path).exists() or not Path(path).read_text():
        never.wait(POLL_S)


def main():
    if said := os.environ.get("SERVER_SAYS"):
        print(said, file=sys.stderr, flush=True)
    if path := os.environ.get("SERVER_LEAVES"):
        leave(path)
    if path := os.environ.get("SERVER_WAITS"):
        never = threading.Event()
        while not Path(path).exists():
            never.wait(POLL_S)
    kind, *port = sys.argv[1:] or ["stdio"]
    if kind == "stdio":
        server.run("stdio")
    else:
        name = {"http": "streamable-http", "sse": "sse"}[kind]
        server.run(name, host="127.0.0.1", port=int(port[0]))


if __name__ == "__main__":
    main()
