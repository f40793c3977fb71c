"""What an operator has at night: the command line and the daemon's log. Both are the real ones.

A ``Stage`` looks at a daemon that somebody else keeps. ``Scene`` is one session that something
happens to, watched by ``cmdc monitor`` from the beginning, with what is shown of it.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, Step
from scripts.incidents.place import STEP_S, Place, StageError, wait

CMDC: Final = Path(sys.executable).with_name("cmdc")
LIFE_S: Final = 120.0
"""Of a command that goes on: what waits for its output is never stuck."""
STARTED: Final = "agent.started"
ENDED: Final = "process.ended"
"""The lines of the log that an incident ends with: another process is there, or none follows."""

Blocks = dict[str, str]
"""What one incident has shown, by the part of it: ``monitor``, ``ps``, ``log`` and the like."""


class Stage:
    """A daemon as those see it who look after it; ``place`` is it where it may be killed."""

    def __init__(
        self,
        client: cmdc.Client,
        address: Path,
        log_text: Callable[[], str],
        place: Place | None = None,
    ) -> None:
        """Look at the daemon at ``address``, whose log ``log_text`` returns."""
        self.client = client
        self.address = address
        self.log_text = log_text
        self._place = place

    @classmethod
    def of(cls, place: Place) -> "Stage":
        """Return the stage of a daemon of one's own."""
        return cls(place.client, place.address, place.log_text, place)

    @property
    def place(self) -> Place:
        """The daemon's directories; for incidents that end the daemon or change its code."""
        if self._place is None:
            raise StageError("this incident needs a daemon of its own")
        return self._place

    @property
    def has_place(self) -> bool:
        """Whether the daemon is the stage's own."""
        return self._place is not None

    def run(self, *arguments: str) -> str:
        """Return all that a command prints."""
        done = subprocess.run(  # noqa: S603 - ourselves
            [CMDC, *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        return done.stdout

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator["Running"]:
        """Lend a command that runs meanwhile; it is ended at the end."""
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [CMDC, *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        limit = threading.Timer(LIFE_S, process.kill)
        limit.start()
        try:
            yield Running(process)
        finally:
            limit.cancel()
            process.kill()
            process.communicate()

    def follow(self, *arguments: str, until: str) -> str:
        """Return what a command prints that goes on, up to the line with ``until``."""
        with self.running(*arguments) as process:
            return process.text_until(until)

    # Any: options as ``create_agent`` takes them.
    @contextlib.contextmanager
    def session(
        self, session_id: str, model: ScriptedModel, **options: Any
    ) -> Iterator[cmdc.Session]:
        """Lend a session that is stopped at the end, if it is there still."""
        session = self.client.create_agent(model=model, session_id=session_id, **options)
        try:
            yield session
        finally:
            with contextlib.suppress(cmdc.CmdcError):
                session.stop()

    @contextlib.contextmanager
    def scene(
        self, session_id: str, *steps: Step, is_brief: bool = False, **options: Any
    ) -> Iterator["Scene"]:
        """Lend a session whose model says ``steps`` and then "Done.", and who watches it."""
        watching = ("monitor", session_id, *(["--brief"] if is_brief else []))
        with (
            ScriptedModel(steps, default="Done.") as model,
            self.session(session_id, model, **options) as session,
            self.running(*watching) as monitor,
        ):
            yield Scene(self, session, monitor)

    # Any: as above.
    def refused(self, session_id: str, *, also: tuple[str, ...] = (), **options: Any) -> Blocks:
        """Return what is shown of a session that cannot be started.

        Of the log it is the lines with its name, and those with one of the words in ``also``.
        """
        start = len(self.log_text())
        with ScriptedModel([], default="Done.") as model:
            try:
                with self.session(session_id, model, **options):
                    pass
            except cmdc.StartFailed:
                last = ("child.not_started", f"child=session:{session_id}")
            else:
                raise StageError(f"{session_id} was started, against the plan")
        log = self.log_since(start, (session_id, *also), last)
        return {"monitor": self.run("monitor", session_id), "log": log}

    def log_since(self, start: int, words: Sequence[str], last: Sequence[str]) -> str:
        """Return the lines of the log from ``start`` on that have one of ``words``.

        It waits for one that has all of ``last``.
        """

        def lines() -> list[str]:
            new = self.log_text()[start:].splitlines()
            return [line for line in new if any(word in line for word in words)]

        def is_logged() -> bool:
            return any(all(word in line for word in last) for line in lines())

        wait(is_logged, f"{' '.join(last)} in the log")
        return "\n".join(lines())

    def _environment(self) -> Mapping[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
        return {**kept, "CMDC_ADDRESS": str(self.address)}


class Scene:
    """A session that something happens to."""

    def __init__(self, stage: Stage, session: cmdc.Session, monitor: "Running") -> None:
        """Wait until it is watched, and begin with the log as it is."""
        self.stage, self.session = stage, session
        self.also: tuple[str, ...] = ()
        """Words of lines of the log that are shown beside those with the session's name."""
        self.greeting = monitor.greeting()
        self._monitor = monitor
        self._log_start = len(stage.log_text())

    def send(self, number: int) -> None:
        """Send a signal to the session's agent, as anybody on the machine can."""
        pid = self.session.agent_pid()
        assert pid is not None  # noqa: S101 - it rests, so it has a process
        os.kill(pid, number)

    def prompt(self) -> None:
        """Ask something."""
        self.session.prompt("Do your work.")

    def wait_up(self, incarnation: int) -> None:
        """Wait until this process of the session rests."""
        wait(
            lambda: _is_resting(self.session, incarnation),
            f"process {incarnation} of {self.session.id} rests",
        )

    def restarted(self, incarnation: int = 2) -> Blocks:
        """Return what is shown of a session that goes on with its next process."""
        self.wait_up(incarnation)
        ps = self.stage.run("ps")
        log = self._log(STARTED, f"incarnation={incarnation}")
        self.session.stop()
        printed = self._monitor.text().splitlines()
        return {"monitor": "\n".join(printed[:-1]), "ps": ps, "log": log}  # the last is of the stop

    def over(self, *last: str) -> Blocks:
        """Return what is shown of a session that has ended."""
        monitor = self._monitor.text()
        log = self._log(*(last or (ENDED,)))
        return {"monitor": monitor, "ps": self.stage.run("ps"), "log": log}

    def _log(self, *last: str) -> str:
        return self.stage.log_since(
            self._log_start, (self.session.id, *self.also), (self.session.id, *last)
        )


class Running:
    """A command that runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """Hold it."""
        self._process = process

    def greeting(self) -> str:
        """Return the first line of what it says on standard error, when it is there."""
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        return self._process.stderr.readline()

    def text(self) -> str:
        """Return its output when it has ended."""
        return self._process.communicate(timeout=STEP_S)[0]

    def text_until(self, word: str) -> str:
        """Return its output up to the line with ``word``."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        found: list[str] = []
        for line in self._process.stdout:
            found.append(line)
            if word in line:
                return "".join(found)
        raise StageError(f"it ended without {word}: {''.join(found)}")


def _is_resting(session: cmdc.Session, incarnation: int) -> bool:
    try:
        status = session.status()
    except cmdc.CmdcError:
        return False
    return (status.incarnation, status.state) == (incarnation, "idle")
