"""Whether Python finds the packages that this project installs, and whether they are whole.

Two of their names are short, and PyPI has another distribution with a package ``supervisor``. pip
installs either over the other without a word: both then lie in one folder, and the removal or the
update of one takes files of the other. Elsewhere on ``sys.path`` theirs can hide ours altogether.

``python -P -m cmdc_runtime.installation`` prints what is wrong, one line for each package, and
exits with 1 if anything is: so a process learns what another one of the same interpreter finds.

Every client and daemon loads this module, and hardly one has to look closely: what that takes is
imported where it is used.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION: Final = "cmdc-runtime"
PACKAGES: Final = ("cmdc_runtime", "supervisor", "workers")
HOME: Final = Path(__file__).resolve().parent.parent
"""The folder that has all packages of this installation."""
MEND: Final = (
    "Give cmdc-runtime a virtual environment of its own; to mend this one, uninstall the other "
    f"one and then run `{sys.executable} -m pip install --force-reinstall --no-deps cmdc-runtime`, "
    "or the same with the path of its wheel"
)


def package_problem(package: str, home: Path = HOME) -> str:
    """Return what is wrong with one of ``PACKAGES``, and the way out; empty if nothing is."""
    ours = home / package
    found = _found(package)
    if found is None:
        return f"{sys.executable} finds no package {package!r}, which belongs at {ours}. {MEND}"
    if found != ours:
        owner = " and ".join(_owners(package, found.parent)) or "no distribution that pip knows"
        return (
            f"another package named {package!r}, at {found} and of {owner}, comes before that of "
            f"cmdc-runtime at {ours}. {MEND}"
        )
    others, damaged = _owners(package, home), _damaged(package, home)
    if others:
        names = " and ".join(others)
        order = f"{names} over cmdc-runtime" if damaged else f"cmdc-runtime over {names}"
        return (
            f"cmdc-runtime and {names} have both a package {package!r}, and share {ours}: {order} "
            f"was installed. What removes or updates one takes files of the other. {MEND}"
        )
    if damaged:
        return (
            f"{len(damaged)} file(s) of cmdc-runtime are missing or changed, the first is "
            f"{home / damaged[0]}: another distribution with a package {package!r} was installed "
            f"over it, or removed. {MEND}"
        )
    return ""


def has_supervisor_beside(home: Path = HOME) -> bool:
    """Say whether PyPI's supervisor is installed into the same folder, at the cost of one look."""
    return any(home.glob("supervisor-*.dist-info"))


def _found(package: str) -> Path | None:
    """Return the folder that an import of ``package`` would take, or the module's file."""
    spec = PathFinder.find_spec(package)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    place = places[0] if places else spec.origin
    return None if place is None else Path(place).resolve()


# --- who has installed it -------------------------------------------------------------------------


def _owners(package: str, home: Path) -> list[str]:
    """Return the other distributions in ``home`` that have files of ``package``, with versions."""
    from importlib.metadata import distributions  # noqa: PLC0415

    found = {
        f"{one.name} {one.version}"
        for one in distributions(path=[str(home)])
        if one.name != DISTRIBUTION and _has(one, package)
    }
    return sorted(found)


def _has(one: "Distribution", package: str) -> bool:
    names = (one.read_text("top_level.txt") or "").split()
    return package in names or any(path.startswith(f"{package}/") for path, _ in _record(one))


def _damaged(package: str, home: Path) -> list[str]:
    """Return the files of ours that are not as they were installed; none is known of a checkout."""
    from importlib.metadata import distributions  # noqa: PLC0415

    own = next(iter(distributions(name=DISTRIBUTION, path=[str(home)])), None)
    rows = () if own is None else _record(own)
    sums = {path: digest for path, digest in rows if path.startswith(f"{package}/")}
    return [path for path, digest in sums.items() if digest and digest != _digest(home / path)]


def _record(one: "Distribution") -> Iterator[tuple[str, str]]:
    """Yield the files that pip has noted of a distribution, each with its checksum or nothing."""
    import csv  # noqa: PLC0415

    for row in csv.reader((one.read_text("RECORD") or "").splitlines()):
        if len(row) > 1:
            yield row[0], row[1]


def _digest(path: Path) -> str:
    """Return the checksum as pip writes it, empty where the file is gone."""
    import base64  # noqa: PLC0415
    import hashlib  # noqa: PLC0415

    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return ""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def main() -> int:
    """Print what is wrong; return the exit status."""
    problems = [text for name in PACKAGES if (text := package_problem(name))]
    sys.stdout.write("".join(f"{text}\n" for text in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
