"""``python -m scripts.quick``: what a change needs within a minute, by the files that it touches.

Format, lint, types and borders are asked of all; of the tests, those run that belong to a changed
module: its mirrors, and every unit and contract test that imports it. Integration tests of it come
last, one file after the other, until ``BUDGET_S`` are over; the others are named. What has changed
is the work tree against ``--base``. The exit status is 1 where anything is wrong; a module to which
no such test belongs is named, since green says nothing of it.
"""

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("cmdc_runtime", "supervisor", "workers")
SCRIPTS: Final = ("benchmarks", "examples", "scripts")
QUICK: Final = ("tests/unit", "tests/contract")
SLOW: Final = ("tests/integration",)
BUDGET_S: Final = 45.0
"""After so long no further file of slow tests is begun."""
TIDY: Final = "tests/architecture/test_tidy.py"
PYTEST: Final = ("pytest", "-p", "no:cacheprovider", "--quiet")
_BIN: Final = Path(sys.executable).parent


def main() -> int:
    """Run what the change needs and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.quick", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="what the work tree is compared with")
    changed = _changed(parser.parse_args().base)
    begun_s = time.monotonic()
    quick = sorted({TIDY, *quick_tests(changed, QUICK)})
    slow = sorted(quick_tests(changed, SLOW))
    checks = [
        ("ruff", "format", "--check"),
        ("ruff", "check"),
        ("mypy", *PRODUCT, *(name for name in SCRIPTS if (ROOT / name).is_dir())),
        ("lint-imports", "--no-logo"),
        (*PYTEST, *quick),
    ]
    wrong = [check[0] for check in checks if _run(check)]
    while slow and time.monotonic() - begun_s < BUDGET_S:
        test = slow.pop(0)
        wrong += [test] if _run((*PYTEST, test)) else []
    bare = [
        path for path in changed if _is_product(path) and not quick_tests([path], (*QUICK, *SLOW))
    ]
    sys.stdout.writelines(f"{path}: no such test imports it\n" for path in bare)
    sys.stdout.writelines(f"{test}: not run, for want of time\n" for test in slow)
    sys.stdout.write(f"{len(changed)} changed files: {', '.join(wrong) or 'green'}\n")
    return 1 if wrong else 0


def quick_tests(changed: Iterable[str], folders: Sequence[str]) -> set[str]:
    """Return the tests in these folders that belong to these files, as paths from the root.

    A module that no test imports is tested through those that import it.
    """
    found: set[str] = set()
    for path in changed:
        if path.startswith(tuple(folders)) and Path(path).name.startswith("test_"):
            found.add(path)
        elif path.endswith(".py") and path.startswith((*PRODUCT, *SCRIPTS)):
            found |= _own(path, folders) or {
                test
                for user, modules in _imported(path.split("/")[0]).items()
                if _module(path) in modules
                for test in _own(user, folders)
            }
    return found


def _own(path: str, folders: Sequence[str]) -> set[str]:
    """Return the tests that import a module, or have its name."""
    tests = [item for folder in folders for item in _imported(folder).items()]
    found = {test for test, modules in tests if _module(path) in modules}
    return found | {one for folder in folders for one in _mirrors(folder, path)}


def _mirrors(folder: str, path: str) -> Iterator[str]:
    """Yield the tests that a module has by its name, in the mirrored place."""
    place, stem = (ROOT / folder / path).parent, Path(path).stem.removeprefix("_")
    for pattern in (f"test_{stem}.py", f"test_{stem}_*.py"):
        yield from (str(one.relative_to(ROOT)) for one in place.glob(pattern))


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _imported(folder: str) -> dict[str, frozenset[str]]:
    """Return what each file of a folder imports; of what a package hands on, where it is from."""
    paths = (ROOT / folder).rglob("test_*.py" if folder.startswith("tests") else "*.py")
    return {str(path.relative_to(ROOT)): frozenset(_imports(path)) for path in paths}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
                yield from (_handed_on(module).get(one.name, module) for one in names)
            case _:
                pass


@cache
def _handed_on(package: str) -> dict[str, str]:
    """Return which module each name comes from that a package imports into its own."""
    path = ROOT / package.replace(".", "/") / "__init__.py"
    if not package.startswith(PRODUCT) or not path.exists():
        return {}
    return {
        one.asname or one.name: node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for one in node.names
    }


def _changed(base: str) -> list[str]:
    ours = ("--", *PRODUCT, *SCRIPTS, "tests")
    named = _git("diff", "--name-only", base, *ours)
    found = {*named, *_git("ls-files", "--others", "--exclude-standard", *ours)}
    return sorted(path for path in found if (ROOT / path).exists())


def _git(*arguments: str) -> list[str]:
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own question
    return done.stdout.split()


def _is_product(path: str) -> bool:
    return path.startswith(PRODUCT) and path.endswith(".py")


def _run(command: tuple[str, ...]) -> int:
    program, *arguments = command
    return subprocess.run((str(_BIN / program), *arguments), cwd=ROOT, check=False).returncode  # noqa: S603 - tools of our own venv


if __name__ == "__main__":
    sys.exit(main())
