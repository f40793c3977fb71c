"""What an import brings along, measured in a fresh interpreter.

Import-linter reads the sources and sees our own lines; these tests see what they load in the end.
"""

import json
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

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
# What a tool host has in its memory is copied at every call.
NOT_IN_TOOL_HOST = {"asyncio", "cloudpickle", "litellm", "multiprocess", "structlog", "zmq"}
PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
OURS = PYPROJECT["tool"]["importlinter"]["root_packages"]
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]


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
    """The daemon loads no model client and no unpickler."""
    found = loaded_by("supervisor.daemon") & NOT_IN_DAEMON

    assert found == set()


@pytest.mark.process
@pytest.mark.parametrize("module", ["cmdc_runtime", "cmdc_runtime.aio", "cmdc_runtime.plugins"])
def test_client_import_is_light(module):
    """It loads neither the other packages nor what only some calls need."""
    found = loaded_by(module) & NOT_IN_CLIENT

    assert found == set()


@pytest.mark.process
def test_an_agent_loads_no_mcp():
    """The SDK takes a second and 60 MB: sessions without servers, and zygotes, do without."""
    found = loaded_by("workers.worker") & {"mcp", "mcp_types", "httpx2"}

    assert found == set()


@pytest.mark.process
def test_tool_host_is_light():
    """It runs one call after the other; what a loop, a log or an agent needs is not its own."""
    found = loaded_by("workers.toolhost.entry") & NOT_IN_TOOL_HOST

    assert found == set()


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract["name"])
def test_what_a_contract_names_is_there(contract):
    """The linter does not look whether what is forbidden exists, or a name in parentheses."""
    floors = [re.split(r"[|:]", floor) for floor in contract.get("layers", ())]
    names = [name.strip(" ()") for name in chain.from_iterable(floors)]
    within = contract.get("containers", [""])
    named = [f"{package}.{name}".strip(".") for package in within for name in names]
    named += [*contract.get("source_modules", ()), *contract.get("forbidden_modules", ())]
    ours = [name for name in named if name.partition(".")[0] in OURS]

    assert sorted(ours) == sorted(set(ours)), "named twice"
    assert [name for name in ours if find_spec(name) is None] == []
