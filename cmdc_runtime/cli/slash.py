"""What a person types in a chat and the model never sees: ``/help``, ``/model``, ``/cost``, ….

A line that begins with ``/`` is one of ``COMMANDS`` or an error; ``//`` stands for a prompt that
begins with ``/``. To add a command: its method here, whose first docstring line is its help, and
its row in ``COMMANDS``. What is said goes to whoever shows the chat, so that both forms have them.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cmdc_runtime.cli.show import waiting_events, waiting_lines
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.lines import neutral, one_line

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.session import Client, Session
    from cmdc_runtime.events import Event

Say = Callable[[str, str], None]
"""Shows a line in a style."""

_KEYS: Final = "Enter sends, Alt-Enter is a new line, Ctrl-C aborts the answer, Ctrl-D leaves"
TOOLS_READ_S: Final = 0.5
"""Between two changes of the tools that are read again; then there are no more."""


class SlashCommands:
    """The commands of one chat."""

    def __init__(
        self, client: "Client", session: "Session", say: Say, address: str | None = None
    ) -> None:
        """Work for a session of the daemon at ``address``, and say what came of it."""
        self._client, self._session, self._say = client, session, say
        self._address = address
        self.is_over = False
        """The chat is to end."""

    def take(self, line: str) -> str | None:
        """Return the prompt that a line is, or do what it says and return None."""
        if line.startswith("//"):
            return line[1:]
        if not line.startswith("/"):
            return line
        name, _, rest = line[1:].strip().partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            unknown = f"no command /{one_line(name)}; /help lists them"
            self._say(f"{unknown}, and // begins a prompt with /", "bad")
            return None
        try:
            command(self, rest.strip())
        except CmdcError as error:
            self._say(neutral(str(error)), "bad")
        return None

    def help(self, _rest: str) -> None:
        """List these commands."""
        for name, command in COMMANDS.items():
            line = (command.__doc__ or "").split("\n")[0]
            self._say(f"/{name:<8} {line}", "plain")
        self._say(_KEYS, "quiet")

    def model(self, rest: str) -> None:
        """Show the model, or with PROVIDER:MODEL use another one from the next request on."""
        if rest:
            self._session.switch_model(rest)
        self._say(f"model {one_line(rest or self._session.status().model)}", "plain")

    def tools(self, _rest: str) -> None:
        """List the tools of the session."""
        names = dict.fromkeys(defined_tools(self._address, self._session.id))
        for event in self._tool_changes():
            for gone in getattr(event, "detached", ()):
                names.pop(gone, None)
            names.update(dict.fromkeys(getattr(event, "attached", ())))
        self._say(one_line(", ".join(names)) if names else "no tools", "plain")

    def _tool_changes(self) -> "list[Event]":
        found: list[Event] = []
        with self._client.subscribe(self._session, since=0, types=["tools_updated"]) as stream:
            while True:
                try:
                    found.append(stream.get(TOOLS_READ_S).event)
                except (TimeoutError, CmdcError):
                    return found

    def cost(self, _rest: str) -> None:
        """Show the tokens and what they cost."""
        status = self._session.status()
        usage = status.token_usage
        cost = "cost not known" if status.cost_usd is None else f"${status.cost_usd:.4f}"
        tokens = f"{usage.prompt_tokens} tokens in, {usage.completion_tokens} out"
        self._say(f"{status.turns} turns, {tokens}, {cost}", "plain")

    def approve(self, rest: str) -> None:
        """List what waits; /approve y, a or n decides on the oldest, or on ID behind it."""
        status = self._session.status()
        word, _, approval_id = rest.partition(" ")
        if not word:
            events = waiting_events(self._client, status)
            lines = list(waiting_lines(status, events)) or ["nothing waits"]
            for line in lines:
                self._say(line, "plain")
            return
        wanted = approval_id.strip() or next(iter(status.pending_approvals), None)
        if wanted is None:
            self._say("nothing waits", "plain")
        elif word in {"y", "a"}:
            once = word == "y"
            self._session.approve(wanted, kind="approve_once" if once else "approve_always")
        elif word == "n":
            self._session.reject(wanted)
        else:
            self._say("/approve takes y, a (always) or n, and an ID", "bad")

    def exit(self, _rest: str) -> None:
        """Leave; Ctrl-D does too."""
        self.is_over = True


COMMANDS: Final[Mapping[str, Callable[[SlashCommands, str], None]]] = {
    "help": SlashCommands.help,
    "model": SlashCommands.model,
    "tools": SlashCommands.tools,
    "cost": SlashCommands.cost,
    "approve": SlashCommands.approve,
    "exit": SlashCommands.exit,
}


def defined_tools(address: str | None, session_id: str) -> list[str]:
    """Return the names of the tools that a session was started with."""
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - with the client
    from cmdc_runtime.client.engine import ClientEngine  # noqa: PLC0415 - with it
    from cmdc_runtime.client.resuming import definition_of  # noqa: PLC0415 - with it
    from cmdc_runtime.requests import GetDefinition  # noqa: PLC0415 - with it

    asked = GetDefinition(session_id=checked_id(session_id))
    with contextlib.closing(ClientEngine(address)) as engine:
        known = engine.call(engine.exchange.ask(asked))
    return [one_line(tool.label) for tool in definition_of(known.agent).tools]
