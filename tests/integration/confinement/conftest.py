"""A folder to be confined to, and what a program in it says."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime
from cmdc_runtime.confinement import landlock, namespaces
from cmdc_runtime.confinement.policy import Policy

CALL_S = 60.0
LIBRARY = str(Path(cmdc_runtime.__file__).parents[1])
CONFINED = """
import os, sys
from msgspec import json
from cmdc_runtime.confinement.apply import confine, openness_of
from cmdc_runtime.confinement.policy import Policy, confinement_of
given = json.decode(sys.argv[1], type=Policy)
given = Policy(**{name: getattr(given, name) for name in given.__struct_fields__} | {
    "readable": (*given.readable, *openness_of("/etc").open)})
confine(confinement_of(given, os.getcwd()))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def skipped_because():
    """Return why this machine can't confine a process; "" where it can."""
    if landlock.abi() < landlock.ABI_MIN:
        return f"the kernel has Landlock's ABI {landlock.abi()}"
    return namespaces.refusal()


WHY_NOT = skipped_because()


@dataclass(frozen=True)
class Box:
    """A folder that programs are confined to."""

    folder: Path

    def run(self, *line, environ=None, **policy):
        """Return how a confined program has ended, with what it said."""
        readable = (*policy.pop("readable", ()), LIBRARY, sys.prefix, sys.base_prefix)
        text = msgspec.json.encode(Policy(readable=readable, **policy)).decode()
        return subprocess.run(
            [sys.executable, "-c", CONFINED, text, *map(str, line)],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "TMPDIR": str(self.folder),
                "PYTHONPATH": LIBRARY,
                **(environ or {}),
            },
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def shell(self, command, **more):
        """Return how a shell's command line has ended."""
        return self.run("sh", "-c", command, **more)

    def python(self, program, *arguments, **more):
        """Return how a program in Python has ended."""
        return self.run(sys.executable, "-c", program, *arguments, **more)


@pytest.fixture
def box(tmp_path):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    folder = tmp_path / "work"
    folder.mkdir()
    return Box(folder)
