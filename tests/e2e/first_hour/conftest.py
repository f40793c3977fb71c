"""One wheel and one environment for all tests of the folder.

With ``CMDC_FIRST_HOUR=1``, as ``make first-hour`` sets it, there are two, of the oldest and of the
newest Python of the machine that the project supports, and pip fills them from the user's index.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.first_hour.installed import IS_WHOLE, ROOT, Environment, build_wheel

REQUIRED = re.compile(r'requires-python = ">=3\.(\d+),<3\.(\d+)"')
TOOLS = ("ipykernel",)
"""What users of the tests have beside the wheel and all its extras."""
ASK_S = 10.0


def supported():
    """Return an interpreter for each minor version that the project supports and that is here."""
    first, end = map(int, REQUIRED.search((ROOT / "pyproject.toml").read_text()).groups())
    own = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for minor in range(first, end):
        places = [*sorted(own.glob(f"3.{minor}.*/bin/python")), shutil.which(f"python3.{minor}")]
        found += [str(one) for one in places if one and answers(one)][:1]
    return found


def answers(python):
    """Say whether an interpreter runs: one that a version manager has in its path may refuse."""
    command = [str(python), "-c", "import ensurepip"]
    return not subprocess.run(command, capture_output=True, check=False, timeout=ASK_S).returncode


def pythons():
    """Return the interpreters for ``place``; None is the one that runs the tests."""
    if not IS_WHOLE:
        return [None]
    found = supported()
    return [found[0], found[-1]] if len(found) > 1 else found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this work tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory, wheel):
    """Make an environment with the wheel and with the dependencies that the tests have."""

    def make():
        made = Environment(tmp_path_factory.mktemp("venv") / "venv")
        made.share_dependencies()
        made.install(wheel)
        return made

    return make


@pytest.fixture(scope="session", params=pythons(), ids=str)
def place(request, tmp_path_factory, make_environment, wheel):
    """The environment that no test changes."""
    if request.param is None:
        return make_environment()
    made = Environment(tmp_path_factory.mktemp("venv") / "venv", request.param)
    made.fill(f"cmdc-runtime[all] @ {wheel.as_uri()}", *TOOLS)
    return made
