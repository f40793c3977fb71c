"""An operator: a daemon that stays, what the command line shows of it, a kill, a backup, an end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

CMDC = Path(sys.executable).with_name("cmdc")
COMMAND_S = 60


def cmdc(*words: str, status: int = 0) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [CMDC, *words], capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def pid_of(session: str) -> int:
    """Return the process of a session."""
    (found,) = [one for one in json.loads(cmdc("ps", "--json")) if one["session_id"] == session]
    return int(found["pid"])


print("version", cmdc("--version").split()[0])
assert cmdc("ps", status=3) == ""
print("no daemon: no session is listed")
cmdc("serve", "--detach", "--json", "--spares", "1")
try:
    findings = {one["name"]: one for one in json.loads(cmdc("doctor", "--json"))}
    print([findings[name]["status"] for name in ("packages", "daemon", "journal", "log")])
    keep = ("run", "--keep", "--session-id", "reader", "--model", os.environ["CMDC_MODEL"])
    print(cmdc(*keep, "Read it.").strip())
    before = pid_of("reader")
    os.kill(before, signal.SIGKILL)
    was_taken = cmdc("prompt", "reader", "And now?") != ""
    print("prompted after the kill, another process:", was_taken, pid_of("reader") != before)
    is_logged = "killed by signal 9" in cmdc("logs", "reader")
    print("in the tree, the kill in the log:", "reader" in cmdc("tree"), is_logged)
    cmdc("backup", "backup.db")
    print("backed up:", Path("backup.db").stat().st_size > 0)
    cmdc("stop", "reader")
    print("ended:", [one["session_id"] for one in json.loads(cmdc("ps", "--all", "--json"))])
    print("its messages are there:", "Read it." in cmdc("show", "reader", "--messages"))
finally:
    has_ended = "has ended" in cmdc("shutdown")
print("shut down, gone:", has_ended, cmdc("ps", status=3) == "")
