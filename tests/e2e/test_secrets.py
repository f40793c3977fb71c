"""What a tool can read of the keys that its agent was started with: as any user, and as root.

It looks into no process outside of its session's calls: not the agent, the daemon, another session,
nor the program that started them all.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cmdc_runtime.confinement import landlock
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

pytestmark = [pytest.mark.process, pytest.mark.slow]

PROGRAM_S = 120.0
NOBODY = 65534
SYSTEM_PYTHON = Path("/usr/bin/python3")
KEY = "sk-5ecret-of-the-provider"
CHOSEN = "given-to-the-tools"
PROGRAM = '''
import json
import os
import cmdc_runtime as cmdc


@cmdc.tool(effects="read")
def look() -> str:
    """Look at this process, and at all that others of the same user show."""
    import ctypes, json, os
    from pathlib import Path

    def read(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    readable = []
    for process in Path("/proc").glob("[0-9]*"):
        if KEY.encode() in read(process / "environ"):
            readable.append(read(process / "cmdline").decode().split("\\0"))
    return json.dumps({
        "environ": dict(os.environ),
        "block": read(Path("/proc/thread-self/environ")).decode(),
        "readable": readable,
        "is_dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    })


@cmdc.tool(effects="read", isolation="task")
async def look_inside() -> str:
    """Look at the agent's own process."""
    import ctypes, json, os
    is_dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    return json.dumps({"is_dumpable": is_dumpable, "has_key": KEY in os.environ.values()})


KEY = os.environ["OPENAI_API_KEY"]
with cmdc.Client() as client:
    session = client.create_agent(
        model="openai/scripted",
        provider_opts={"api_base": os.environ["MODEL_URL"], "api_key": "none"},
        tools=[look, look_inside, cmdc.tools.Shell],
        tool_env=["MY_TOOLS_KEY", "NOT_SET"],
    )
    session.run("Go.", timeout=60)
    print(json.dumps([one.content for one in session.messages() if one.role == "tool_result"]))
'''
SHELL = "env; echo; cat /proc/self/environ /proc/$PPID/environ"
SCRIPT = (
    ToolCalls(ToolUse("look", {})),
    ToolCalls(ToolUse("look_inside", {})),
    ToolCalls(ToolUse("shell", {"command": SHELL})),
)


def as_nobody(folder):
    """Return the start of a command line that runs a Python as a user without rights.

    It is the system's, since another user may not read the one that runs the tests, with the
    packages of that one.
    """
    if os.geteuid() != 0 or not shutil.which("setpriv") or not SYSTEM_PYTHON.exists():
        pytest.skip("it takes root, setpriv and a Python of the system")
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    own = folder / "venv" / "lib" / Path(packages).parent.name / "site-packages"
    python = folder / "venv" / "bin" / "python"
    for path in (own, python):
        path.parent.mkdir(parents=True)
    own.symlink_to(packages)
    python.symlink_to(SYSTEM_PYTHON)
    (folder / "venv" / "pyvenv.cfg").write_text(f"home = {SYSTEM_PYTHON.parent}\n")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    line = ["setpriv", *user, str(python)]
    probe = [*line, "-c", "import cmdc_runtime.client.sync.session, zmq, multiprocess"]
    probed = subprocess.run(probe, cwd=folder, capture_output=True, check=False)
    if probed.returncode:
        pytest.skip(f"another user cannot run it: {probed.stderr.decode()[-200:]}")
    return line


@pytest.fixture(params=["as it is", "as nobody"])
def findings(request):
    """Return what the tools of a program have found out, and who ran it."""
    with (
        tempfile.TemporaryDirectory(prefix="cmdc-secrets-") as folder,
        ScriptedModel(SCRIPT, default="done") as model,
    ):
        line, owner = [sys.executable], os.geteuid()
        if request.param == "as nobody":
            Path(folder).chmod(0o755)
            line, owner = as_nobody(Path(folder)), NOBODY
        os.chown(folder, owner, -1)
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        program.chmod(0o644)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "TMPDIR": folder,
            "MODEL_URL": model.url,
            "OPENAI_API_KEY": KEY,
            "MY_TOOLS_KEY": CHOSEN,
        }
        done = subprocess.run(
            [*line, str(program)],
            env=environ,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        look, inside, shell = json.loads(done.stdout)
        return json.loads(look), json.loads(inside), shell, owner


def test_a_tools_process_has_no_key_and_looks_into_no_process_that_has_one(findings):
    """Whoever it is: a domain of Landlock holds for root as well."""
    look, inside, shell, _owner = findings

    assert KEY not in json.dumps([look["environ"], look["block"]])
    assert look["environ"]["MY_TOOLS_KEY"] == CHOSEN
    assert "NOT_SET" not in look["environ"]
    own = {name for name in look["environ"] if name.startswith("CMDC_")}
    assert own == {"CMDC_SESSION_ID", "CMDC_INCARNATION", "CMDC_CALL_ID"}
    assert (look["is_dumpable"], inside["is_dumpable"]) == (0, 0)
    assert inside["has_key"]  # or nothing was tried
    if landlock.abi() >= landlock.ABI_OF[landlock.Fs.REFER]:
        assert KEY not in shell
        assert look["readable"] == []


def test_a_shell_command_has_no_key(findings):
    """Nor what was chosen for the tools that are functions."""
    own, _, _ = findings[2].partition("\n\n")

    assert "PATH=" in own
    assert KEY not in own
    assert CHOSEN not in own
