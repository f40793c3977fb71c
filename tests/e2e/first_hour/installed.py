"""Environments of their own, into which the wheel of this work tree is installed.

In the suite they are of the Python that runs it, and see the dependencies where that one has them,
by a path file: what is installed is the wheel alone, and the repository is on no path.
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
INSTALL_S = 120.0
PROGRAM_S = 90.0


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
        """Let it see what the Python that runs the tests has, behind what it has itself.

        A path file in a folder that is named by another one is not read: so the editable
        installation of the work tree is not seen.
        """
        (self.packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *words):
        """Install or uninstall without asking any index."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *words]
        environ = clean_environ() | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        assert done.returncode == 0, done.stderr

    def install(self, wheel):
        """Install a wheel, over what is there."""
        self.pip("install", "--quiet", "--no-deps", "--no-compile", "--force-reinstall", str(wheel))

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
