"""Plays the attempts of ``integration/escapes`` in a sandbox, with what could be reached."""

import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cmdc_runtime.extensions.sandbox import ExecuteSettings, Sandbox, SandboxError, SandboxPlace
from cmdc_runtime.tool_environment import passed_on
from workers.mcp.process import ServerProcess, ServerProgram

CORPUS = Path(__file__).parent / "integration/escapes/attempts.toml"
LIBRARY = Path(__file__).parents[1]
ATTEMPT_S = 20
ALL_S = 900.0
SECRET = "4711"

VICTIM = """
import os, socket, sys
here, there, tcp = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()
here.bind(os.environ["SOCK"]); here.listen()
docker = socket.socket(socket.AF_UNIX); docker.bind("docker.sock"); docker.listen()
there.bind("\\0" + os.environ["ABSTRACT"]); there.listen()
tcp.bind(("127.0.0.1", 0)); tcp.listen()
print(tcp.getsockname()[1], flush=True)
sys.stdin.read()
"""
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
given = [int(one) if one.lstrip("-").isdecimal() else one.encode() for one in sys.argv[1:]]
given = [ctypes.c_long(one) if isinstance(one, int) else one for one in given]
result = libc.syscall(*given)
sys.exit(1 if result < 0 and ctypes.get_errno() in {1, 13, 16, 18, 30, 38} else 0)
"""
DRIVER = """
import json, os, signal, subprocess, sys
escaped = []
for name, command, limit_s in json.load(open("attempts.json")):
    child = subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, close_fds=False, process_group=0,
    )
    try:
        status = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        status = None
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    if status == 0:
        escaped.append(name)
print(json.dumps(escaped))
"""


@dataclass(frozen=True)
class Attempt:
    """One row of the corpus."""

    kind: str
    name: str
    layer: str
    command: str
    marks: tuple[str, ...]

    @property
    def id(self):
        """Its name in the whole corpus."""
        return f"{self.kind}: {self.name}"


def corpus() -> list[Attempt]:
    """Return all attempts."""
    kinds = tomllib.loads(CORPUS.read_text(encoding="utf-8"))
    return [
        Attempt(kind, name, row[0], row[1], tuple(row[2:]))
        for kind, rows in kinds.items()
        for name, row in rows.items()
    ]


def skipped(attempt: Attempt, *, confines: bool) -> str:
    """Return why an attempt is not played; "" where it is."""
    if "x86" in attempt.marks and platform.machine() != "x86_64":
        return "its numbers are those of x86-64"
    return "" if confines or "risky" not in attempt.marks else "it would harm this machine"


@dataclass(frozen=True)
class Ground:
    """A folder to work in, one outside, and a process outside."""

    work: Path
    outside: Path
    environment: dict[str, str]

    def state(self) -> dict[str, object]:
        """Return what nobody may change: all that is outside, and orders inside."""
        inside = (".git/hooks", "sub/.git/hooks", "a/b/c/.git/hooks", ".vscode", ".claude", ".idea")
        roots = [self.outside, *(self.work / one for one in inside)]
        files = [path for root in roots for path in sorted(root.rglob("*"))]
        files += [self.work / ".git/config", self.work / "sub/.git/config"]
        return {
            str(path): path.read_bytes() if path.is_file() else path.lstat().st_mode
            for path in files
        }


@contextlib.contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Lay it all out, with a process that has a key and listens."""
    work, outside = folder / "work", folder / "outside"
    for path in (work, outside / "home/.ssh", outside / "empty"):
        path.mkdir(parents=True)
    (outside / "secret").write_text(f"{SECRET}\n")
    (outside / "home/.ssh/id_test").write_text("key\n")
    (outside / "program").write_text("#!/bin/sh\ntrue\n")
    (outside / "program").chmod(0o755)
    (outside / "true").write_bytes(Path("/bin/true").read_bytes())
    for number in ("", "2", "3", "4", "5"):
        (outside / f"scratch{number}").write_text("x\n")
    for name in ("removable", "movable", "movable2"):
        (outside / name).write_text("x\n")
    _repositories(work)
    (work / "planted").symlink_to(outside)
    (work / "magic").symlink_to(f"/proc/self/root{outside}")
    (work / "relative").symlink_to(".git")
    (work / "call.py").write_text(CALL)
    (work / "driver.py").write_text(DRIVER)
    environment = {
        "OUT": str(outside),
        "HOME_OUTSIDE": str(outside / "home"),
        "SOCK": str(outside / "socket"),
        "ABSTRACT": f"cmdc-escapes-{os.getpid()}",
        "PY": sys.executable,
        "CALL": f"{sys.executable} {work}/call.py",
        "OUTER": str(os.getpid()),
        "LIBRARY": str(LIBRARY),
    }
    with _victim(outside, environment) as victim:
        yield Ground(work, outside, {**environment, **victim})


def _repositories(work: Path) -> None:
    for path in (work, work / "sub", work / "a/b/c"):
        subprocess.run(["git", "init", "-q", str(path)], check=True)
        (path / ".git/info").mkdir(exist_ok=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    commit = ["git", *identity, "commit", "-qm", "one", "--allow-empty"]
    subprocess.run(commit, cwd=work, check=True)


@contextlib.contextmanager
def _victim(outside: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    high = os.open(outside / "secret", os.O_RDONLY)
    os.set_inheritable(high, True)
    line = [sys.executable, "-c", VICTIM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    given = {**os.environ, **environment, "VICTIM_KEY": "sk-victim"}
    with subprocess.Popen(line, cwd=outside, env=given, **pipes) as victim:
        try:
            port = victim.stdout.readline().strip()
            yield {"VICTIM": str(victim.pid), "PORT": port, "HIGH": str(high)}
        finally:
            os.close(high)
            victim.kill()


def escaped(sandbox: Sandbox, place: Ground, *, is_server: bool = False) -> set[str]:
    """Return the ids of the attempts that have escaped from a new sandbox.

    Commands are those of a tool, or of a server.
    """
    sandbox.begin(SandboxPlace(session_id="s-escapes", working_dir=str(place.work)))
    played = [one for one in corpus() if not skipped(one, confines=sandbox.confines)]
    commands = [one for one in played if one.layer != "tools"]
    before = place.state()
    found = {one.id for one in played if one.layer == "tools" and _has_done(sandbox, one, place)}
    rows = [(one.id, one.command, ATTEMPT_S) for one in commands]
    (place.work / "attempts.json").write_text(json.dumps(rows))
    told = asyncio.run(_served(sandbox, place) if is_server else _executed(sandbox, place))
    found |= set(json.loads(told.splitlines()[-1]))
    if place.state() == before:  # what was written lies in a folder of the sandbox's own
        writers = [one for one in commands if one.kind == "write" or "test -e $OUT" in one.command]
        found -= {one.id for one in writers if "out" in one.command.lower()}
    return found


async def _executed(sandbox: Sandbox, place: Ground) -> str:
    settings = ExecuteSettings(timeout_s=ALL_S, env=place.environment)
    done = await sandbox.execute(f"{sys.executable} driver.py", settings)
    assert done.exit_status == 0, done.output
    return done.output


async def _served(sandbox: Sandbox, place: Ground) -> str:
    command = sandbox.server_program([sys.executable, "driver.py"])
    environment = {**passed_on(os.environ), **place.environment}
    program = ServerProgram(command, str(place.work), environment, confines_itself=True)
    process = await ServerProcess.start(program, lambda _: None)
    try:
        async with asyncio.timeout(ALL_S):
            told = await process.stdout.read()
            await process.ended.wait()
    finally:
        await process.close()
    assert process.status == 0, process.last_words
    return told.decode()


def _has_done(sandbox: Sandbox, attempt: Attempt, place: Ground) -> bool:
    """Say whether a tool for files did what it was asked for."""
    verb, *given = attempt.command.split(" ")
    given = [one.replace("$OUT", str(place.outside)) for one in given]
    if verb == "write_file":
        given.append("x")
    try:
        answer = getattr(sandbox, verb)(*given)
    except SandboxError:
        return False
    return bool(getattr(answer, "matches", True))
