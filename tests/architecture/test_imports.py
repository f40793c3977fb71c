"""What an import brings along, measured in a fresh interpreter.

Import-linter reads the sources and sees our own lines; these tests see what they load in the end.
"""

import json
import subprocess
import sys

import pytest

IMPORT_TIMEOUT_S = 60.0
PROBE = "import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"

# A daemon is small, starts fast and cannot be talked into running what it forwards.
NOT_IN_DAEMON = {
    "cloudpickle",
    "dill",
    "httpx",
    "litellm",
    "mcp",
    "openai",
    "pydantic",
    "workers",
}
# An application pays for what it uses: the command line, packing and the rest come when called.
NOT_IN_CLIENT = {"click", "cloudpickle", "litellm", "openai", "rich", "supervisor", "workers"}


def loaded_by(module):
    """Return the top-level names that a fresh interpreter has loaded after one import."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        check=True,
        capture_output=True,
        text=True,
        timeout=IMPORT_TIMEOUT_S,
    )
    return {name.partition(".")[0] for name in json.loads(probe.stdout)}


@pytest.mark.process
def test_daemon_loads_no_model_code():
    """The daemon loads no model client and no unpickler but the one within ``multiprocess``."""
    # multiprocess imports dill by itself, and forks the nursery without giving it anything of a
    # user's; what is loaded beyond what multiprocess loads is our doing.
    found = loaded_by("supervisor.daemon") & (NOT_IN_DAEMON - loaded_by("multiprocess"))

    assert found == set()


@pytest.mark.process
def test_client_import_is_light():
    """``import cmdc_runtime`` loads neither the other packages nor what only some calls need."""
    found = loaded_by("cmdc_runtime") & NOT_IN_CLIENT

    assert found == set()
