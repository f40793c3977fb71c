"""The main job before your eyes: an agent with tools, killed in mid-stream, back with nothing lost.

    make demo

A private daemon starts, an agent answers with tools that read this project's files, its event
stream is shown live, its process is killed with SIGKILL in the middle of a sentence, and the next
process finishes the answer. With ``CMDC_MODEL``, ``ANTHROPIC_API_KEY`` or ``OPENAI_API_KEY`` set
the model is a real provider's, else a small real one that runs on this machine.
"""

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.local_model import LocalModel

ROOT: Final = Path(__file__).resolve().parent.parent
PROMPT: Final = "Use the tool to count the lines of README.md, then tell a story about that file."
KILL_AFTER_DELTAS: Final = 4
"""Pieces of text that are let through before the kill: the answer is well under way then."""
STORY_TOKENS_MAX: Final = 120

console = Console(highlight=False)


@cmdc.tool(effects="read")
def count_lines(path: str) -> str:
    """Count the lines of a file of the project, for example README.md."""
    file = ROOT / path
    if not file.is_file():
        raise cmdc.ToolError(f"there is no file {path!r}; try 'README.md'")
    return f"{path} has {len(file.read_text().splitlines())} lines"


def choose_model(stack: ExitStack) -> Any:  # Any: a model's name or a model source
    """Return the model that the environment names, or a local one."""
    if model := os.environ.get("CMDC_MODEL"):
        return model
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-haiku-4-5"
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-4o-mini"
    return stack.enter_context(LocalModel())


class Show:
    """Prints the events of one cycle and kills its agent once, in mid-stream."""

    def __init__(self, session: cmdc.Session) -> None:
        """Watch ``session``."""
        self._session = session
        self._deltas = 0
        self._killed_at: float | None = None
        self.last_index = 0
        self.restart_s: float | None = None

    def event(self, envelope: cmdc.Envelope) -> bool:
        """Print one event; False means that the cycle is over."""
        if envelope.index != self.last_index + 1:
            sys.exit(f"index {envelope.index} follows {self.last_index}: an event was lost")
        self.last_index = envelope.index
        match envelope.event:
            case events.MessageDelta(delta=delta):
                console.print(escape(delta), end="", style="bold")
                self._kill_once()
            case events.AgentRecovered(incarnation=incarnation, reason=reason, resumed=resumed):
                if self._killed_at is not None:
                    self.restart_s = time.monotonic() - self._killed_at
                note = f"process {incarnation} took over ({reason}), resumes the {resumed}"
                self._line(envelope, "agent_recovered", note, "green")
            case events.AgentEnd(usage=usage):
                self._line(envelope, "agent_end", f"{usage.total_tokens} tokens", "cyan")
                return False
            case events.AgentError(reason=reason):
                sys.exit(f"the model failed: {reason}")
            case event:
                self._line(envelope, event.kind, _fields(event), "dim")
        return True

    def _kill_once(self) -> None:
        self._deltas += 1
        if self._deltas != KILL_AFTER_DELTAS or self._killed_at is not None:
            return
        pid = self._session.agent_pid()
        if pid is None:
            return
        console.print(f"\n\n  [bold red]kill -9 {pid}[/]   in the middle of the sentence\n")
        self._killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _line(envelope: cmdc.Envelope, kind: str, note: str, style: str) -> None:
        room = max(console.width - len(f"  {envelope.index:>4}  {kind:<24}") - 1, 20)
        note = note if len(note) <= room else f"{note[: room - 3]}..."
        console.print(f"\n  [{style}]{envelope.index:>4}  {kind:<24}{escape(note)}[/]", end="")


def _fields(event: cmdc.events.Event) -> str:
    shown = {name: getattr(event, name) for name in event.__struct_fields__}
    return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def main() -> None:
    """Run the demo; exits with 1 if anything was lost."""
    with ExitStack() as stack:
        with console.status("starting a model, a daemon and its zygote"):
            started = time.monotonic()
            model = choose_model(stack)
            session = cmdc.create_agent(
                model=model,
                tools=[count_lines, cmdc.tools.ListDir],
                working_dir=ROOT,
                max_tokens=STORY_TOKENS_MAX,
                prompt_mode="minimal",
            )
            stack.enter_context(session)
        console.print(f"agent {session.id} is process {session.agent_pid()}", end=" ")
        console.print(f"({time.monotonic() - started:.1f} s from nothing)\n\n  > {PROMPT}")

        monitor = session.monitor()
        stream = session.subscribe()
        session.prompt(PROMPT)
        show = Show(session)
        for envelope in stream:
            if not show.event(envelope):
                break
        down = monitor.wait(timeout=10)
        console.print(f"\n\nDown:      {down.reason}; restarting: {down.restarting}")
        if show.restart_s is not None:
            console.print(f"Restart:   {show.restart_s * 1000:.0f} ms from kill to recovered")
        console.print(f"Events:    1 to {show.last_index}, none missing, none twice")
        console.print(f"Answer:    {escape(session.collect_reply())}\n")
        for message in session.messages():
            said = message.content or f"calls {', '.join(c.name for c in message.tool_calls)}"
            console.print(f"  [dim]{message.role:<12}{escape(said[:60])}[/]")
    console.print("\n[dim]The agent, the zygote and the daemon end with this program.[/]")


if __name__ == "__main__":
    main()
