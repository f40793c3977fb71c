"""Plays the attempts of ``fault/escapes`` in a sandbox, with what could be reached."""

import asyncio
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cmdc_runtime.extensions.sandbox import ExecuteSettings, Sandbox, SandboxError, SandboxPlace
from cmdc_runtime.tool_environment import passed_on
from tests import escapees
from tests.escapees import watched
from workers.mcp.process import ServerProcess, ServerProgram

CORPUS = Path(__file__).parent / "fault/escapes/attempts.toml"
LIBRARY = Path(__file__).parents[1]
ATTEMPT_S = 20
ALL_S = 900.0
SECRET = "4711"

SKILL = f"---\nname: pdf\ndescription: It is {SECRET}.\n---\nRead.\n"

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
ASK = """
import os, socket, sys
from urllib.parse import urlsplit

def unescaped(text):
    return text.encode().decode("unicode_escape").encode("latin-1")

def opened(target):
    '''A tunnel by the proxy; where there is none, the way itself.'''
    proxy = os.environ.get("http_proxy")
    if proxy is None:
        host, _, port = target.decode().rpartition(":")
        return socket.create_connection((host.strip("[]").rpartition("@")[2], int(port)), 5)
    at = urlsplit(proxy)
    one = socket.create_connection((at.hostname, at.port), 5)
    one.sendall(b"CONNECT " + target + b" HTTP/1.1\\r\\n\\r\\n")
    answer = b""
    while not answer.endswith(b"\\r\\n\\r\\n"):
        chunk = one.recv(1)
        if not chunk:
            sys.exit(1)
        answer += chunk
    return one if b" 200 " in answer.partition(b"\\r\\n")[0] else sys.exit(1)

target, *said = map(unescaped, sys.argv[1:])
if target == b"raw":
    at = urlsplit(os.environ.get("http_proxy", "http://93.184.216.34:80"))
    one = socket.create_connection((at.hostname, at.port), 5)
else:
    one = opened(target)
one.settimeout(5)
heard = b""
for part in said or [b"\\x16\\x03\\x01\\x00\\x05hello"]:
    one.sendall(part)
try:
    while chunk := one.recv(4096):
        heard += chunk
        if b"4711" in heard:
            sys.exit(0)
        if b"welcome" in heard and len(said) < 2:
            break
except OSError:
    pass
sys.exit(1)
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


HOSTS = "hosts"
"""The kind that is played where the network is a proxy's."""
AGENT = "agent"
"""The kind that prepares something for the agent's own process, one by one."""
DEED_S = 30.0
BOMBS = "bombs"
"""The kind of which each is a command by itself."""
BOMB_S = 3.0
KEPT_BYTES_MAX = 17_000_000
"""Of one command: what is shown of its output, and the file with all of it."""


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
    for path in (work, outside / "home/.ssh", outside / "empty", outside / "skills/pdf"):
        path.mkdir(parents=True)
    (outside / "secret").write_text(f"{SECRET}\n")
    (outside / "home/.ssh/id_test").write_text("key\n")
    (outside / "skills/pdf/SKILL.md").write_text(SKILL)
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
    (work / "escapees.py").write_bytes(Path(escapees.__file__).read_bytes())
    with (work / "sparse").open("wb") as sparse:
        sparse.truncate(64 * 2**30)
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
    kinds = [one for one in corpus() if one.kind != HOSTS]
    played = [one for one in kinds if not skipped(one, confines=sandbox.confines)]
    commands = [one for one in played if one.layer != "tools" and one.kind not in {AGENT, BOMBS}]
    deeds = [] if is_server else [one for one in played if one.kind == AGENT]
    bombs = [] if is_server else [one for one in played if one.kind == BOMBS]
    before = place.state()
    found = {one.id for one in played if one.layer == "tools" and _has_done(sandbox, one, place)}
    found |= {one.id for one in bombs if _has_gone_off(sandbox, one, place)}
    found |= {one.id for one in deeds if _has_used(sandbox, one, place)}
    _write_down(commands, place.work)
    run = _served(sandbox, place) if is_server else _executed(sandbox, place.environment)
    printed = asyncio.run(run)
    found |= set(json.loads(printed.splitlines()[-1]))
    if place.state() == before:  # what was written lies in a folder of the sandbox's own
        writers = [one for one in commands if one.kind == "write" or "test -e $OUT" in one.command]
        found -= {one.id for one in writers if "out" in one.command.lower()}
    return found


def _write_down(attempts: list[Attempt], work: Path) -> None:
    rows = [(one.id, one.command, ATTEMPT_S) for one in attempts]
    (work / "attempts.json").write_text(json.dumps(rows))


async def _executed(sandbox: Sandbox, environment: dict[str, str]) -> str:
    settings = ExecuteSettings(timeout_s=ALL_S, env=environment)
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
            printed = await process.stdout.read()
            await process.ended.wait()
    finally:
        await process.close()
    assert process.status == 0, process.stderr_tail
    return printed.decode()


def _has_gone_off(sandbox: Sandbox, attempt: Attempt, place: Ground) -> bool:
    """Say whether more than a status is left of a command, or that is 0."""
    kept = ".cmdc/output/bomb.txt"
    settings = ExecuteSettings(timeout_s=BOMB_S, env=place.environment, output_file=kept)
    with watched(place.work / "fifo") as is_held:
        ended = asyncio.run(sandbox.execute(attempt.command, settings))
        is_left = is_held()
    (place.work / "fifo").unlink()
    file = place.work / kept
    size_bytes = file.stat().st_size if file.exists() else 0
    file.unlink(missing_ok=True)
    return is_left or ended.exit_status == 0 or len(ended.output) + size_bytes > KEPT_BYTES_MAX


USED = (".cmdc", "AGENTS.md", "TEAM.md", "way", "notes", "nested", "skills", "notes.db")
"""What commands prepare for the agent; it is removed after each."""


def _has_used(sandbox: Sandbox, attempt: Attempt, place: Ground) -> bool:
    """Say whether the agent's own process gets out by what a command has prepared for it."""
    asyncio.run(sandbox.execute(attempt.command, ExecuteSettings(env=place.environment)))
    before, [deed] = place.state(), attempt.marks
    line = [sys.executable, "-m", "tests.agent_deeds", deed, str(place.work)]
    try:
        done = subprocess.run(line, cwd=LIBRARY, capture_output=True, timeout=DEED_S, check=True)
        is_out = SECRET.encode() in done.stdout or place.state() != before
    except subprocess.TimeoutExpired:
        is_out = True
    for path in (place.work / name for name in USED):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
    return is_out


def escaped_hosts(kind: str, folder: Path) -> set[str]:
    """Return the ids of the attempts to reach other hosts that have escaped from a sandbox."""
    (folder / "work").mkdir(parents=True)
    line = [sys.executable, "-m", "tests.internet", kind, str(folder)]
    given = {name: text for name, text in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        line, cwd=LIBRARY, env=given, capture_output=True, text=True, timeout=ALL_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def played_hosts(sandbox: Sandbox, work: Path) -> set[str]:
    """Play them in a sandbox, where there is an internet of the test's own."""
    for name, program in {"call.py": CALL, "driver.py": DRIVER, "ask.py": ASK}.items():
        (work / name).write_text(program)
    environment = {
        "PY": sys.executable,
        "CALL": f"{sys.executable} {work}/call.py",
        "ASK": f"{sys.executable} {work}/ask.py",
    }
    sandbox.begin(SandboxPlace(session_id="s-escapes", working_dir=str(work)))
    attempts = [one for one in corpus() if one.kind == HOSTS]
    _write_down(attempts, work)
    printed = asyncio.run(_executed(sandbox, environment))
    return set(json.loads(printed.splitlines()[-1]))


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
