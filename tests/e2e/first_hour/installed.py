"""Environments of their own, into which the wheel of this work tree is installed.

In the suite they are of the Python that runs it and link the dependencies from where that one has
them: what is installed is the wheel alone, and the repository is on no path.
"""

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
IS_WHOLE = "CMDC_FIRST_HOUR" in os.environ
"""Whether pip fills the environments from an index."""
INSTALL_S = 120.0
FILL_S = 1800.0
"""For everything, over a slow line."""
PROGRAM_S = 240.0


def build_wheel(folder):
    """Return the wheel of this work tree, built into the folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def write_wheel(folder, name, version, files):
    """Return a wheel that has these files, by their path, and belongs to nobody."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = files | {f"{info}/METADATA": metadata, f"{info}/WHEEL": tags}
    rows = [f"{info}/RECORD,,"]
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            rows.append(f"{inside},sha256={digest.rstrip(b'=').decode()},{len(text.encode())}")
            wheel.writestr(inside, text)
        wheel.writestr(f"{info}/RECORD", "\n".join(rows) + "\n")
    return path


class Environment:
    """One virtual environment in a folder that is not there yet."""

    def __init__(self, folder, python=sys.executable):
        """Make it, with nothing in it."""
        command = [str(python), "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(command, check=True, timeout=INSTALL_S)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.cmdc = folder / "bin" / "cmdc"
        """The command line, a script for ``run``."""
        (self.packages,) = folder.glob("lib/python3*/site-packages")

    def share_dependencies(self):
        """Have what the Python that runs the tests has, but for this project.

        A link for each entry of the folder, where pip would have put a copy of it.
        """
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            is_own = path.name.startswith(("cmdc_runtime", "_cmdc_runtime"))
            if not is_own and path.suffix != ".pth" and path.name != "__pycache__":
                (self.packages / path.name).symlink_to(path)

    def pip(self, *words):
        """Install or uninstall without asking any index."""
        self._pip(INSTALL_S, *words, PIP_NO_INDEX="1")

    def fill(self, *requirements):
        """Install with all dependencies, from the index that the user's pip asks."""
        self._pip(FILL_S, "install", "--quiet", *requirements)

    def install(self, wheel):
        """Install a wheel, over what is there."""
        self.pip("install", "--quiet", "--no-deps", "--no-compile", "--force-reinstall", str(wheel))

    def _pip(self, timeout_s, *words, **environ):
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *words]
        done = subprocess.run(
            command,
            env=clean_environ() | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def run(self, *words, cwd, **environ):
        """Return how a program of it ended; it finds neither a daemon nor the repository."""
        return subprocess.run(
            [str(self.python), *map(str, words)],
            env=clean_environ() | {"CMDC_RUNTIME_DIR": str(Path(cwd) / "no-daemon-here")} | environ,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )


def clean_environ():
    """Return the environment without what says something to us, to Python or to pip."""
    ours = ("CMDC_", "PYTHON", "PIP_NO", "COV", "VIRTUAL_ENV")
    return {name: text for name, text in os.environ.items() if not name.startswith(ours)}
