"""The embedded daemon of a program dies, and the program goes on with the next one."""

import os
import subprocess
import sys

import pytest

from cmdc_runtime.testing import ScriptedModel

pytestmark = [pytest.mark.fault, pytest.mark.process]

PROGRAM_S = 120.0
PROGRAM = """
import os, signal, threading
import cmdc_runtime as cmdc
from cmdc_runtime.client.embedded import lease

given = {
    "model": "openai/scripted",
    "provider_opts": {"api_base": os.environ["MODEL_URL"], "api_key": "none"},
}


def start():
    with cmdc.create_agent(**given) as session:
        answers.append(session.run("And you?", timeout=60).text)


def daemon():
    held = lease()
    held.release()
    return held.daemon.pid


old = cmdc.create_agent(**given, session_id="kept")
print(old.run("Are you there?", timeout=60).text)
stream = old.subscribe()
first = daemon()
os.kill(first, signal.SIGKILL)
try:
    list(stream)
except cmdc.DaemonUnavailable as error:
    print("stream:", "gone" in str(error))

answers = []
threads = [threading.Thread(target=start) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers, daemon() != first)

for call in (old.status, old.messages, old.stop, lambda: old.prompt("Hm?"), old.subscribe):
    try:
        call()
    except cmdc.SessionNotAlive as error:
        print("gone" in str(error))
try:
    cmdc.status("never")
except cmdc.InvalidSession:
    print("never seen")

again = cmdc.create_agent(**given, session_id="kept")
print(old.run("Back?", timeout=60).text, again.status().turns)
again.stop()
"""


@pytest.mark.fault_case("F94")
def test_module_level_calls_go_on_after_their_daemon(tmp_path, processes_of):
    """One new daemon for many threads; a handle of an old session says what became of it."""
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("CMDC_")
    } | {"TMPDIR": str(tmp_path), "CMDC_RUNTIME_DIR": str(tmp_path / "nowhere")}
    with ScriptedModel([], default="fine") as model:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment | {"MODEL_URL": model.url},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines() == [
        "fine",
        "stream: True",
        f"{['fine'] * 6} True",
        *["True"] * 5,
        "never seen",
        "fine 1",
    ]
    assert processes_of(tmp_path) == []
    assert [*tmp_path.glob("cmdc-*")] == []
