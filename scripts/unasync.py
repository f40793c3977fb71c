"""``python -m scripts.unasync``: write what is made of the client's async face, or ``--check`` it.

Made are the methods of ``AsyncSession``, which are the client's with the id bound; the modules of
``cmdc_runtime/client/sync``; of ``cmdc_runtime/exports.py``, the modules of the calls and what type
checkers read of the package; and of ``Options``, what they read of its fields. The exit status of a
check is 1 where a file is out of date.

A module in ``MADE`` uses no event loop by itself: what differs between the faces has a pair of
classes by hand, ``AsyncName`` and ``Name``, in ``callers`` and ``queues``. To make one more module,
add its name there.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cmdc_runtime.exports import CALLS, MODULE_OF, MODULES
from scripts import given_options

ROOT: Final = Path(__file__).parents[1]
CLIENT: Final = ROOT / "cmdc_runtime" / "client"
MADE: Final = ("control", "follower", "runner", "session", "stream")
_CALLED: Final = ("control", "session", "follower")
"""Whose first classes have the calls, in the order of the methods that are made."""
BEGIN: Final = "    # --- made by ``make sync`` of the calls above: begin "
END: Final = "    # --- end "
SUBSTITUTIONS: Final = (
    (r"use it in one event loop, and ``close`` it or use ``async with``\.",
     "``close`` it or use ``with``. Any thread may use it."),
    (r"``callback\(down\)``, plain or a coroutine function, runs as a task of this loop\.",
     "``callback(down)`` runs in a thread for callbacks only, and may call this client."),
    (r" What ``on_event`` returns is awaited\n +where it can be\.", ""),
    (r"for coroutines", "for threads"),
    (r"\b(?:async|await) ", ""),
    (r"\bAwaitable\[([^\[\]]*)\]", r"\1"),
    (r"\basync_client\b", "client"),
    (r"\bAsyncQueue\b", "ThreadQueue"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (rf"\bcmdc_runtime\.client\.({'|'.join(MADE)})\b", r"cmdc_runtime.client.sync.\1"),
)  # fmt: skip
"""In this order; each is used."""
AIO: Final = ("Parallel", "Runner")
"""What ``cmdc_runtime.aio`` has besides the calls, from ``cmdc_runtime.client``."""
ABOUT_FUNCTIONS: Final = """\
The module-level functions: the methods of one client that every thread of the process shares.

Given a session object of another client, they are that client's methods.
"""
ABOUT_AIO: Final = """\
The module-level functions as coroutines: ``from cmdc_runtime import aio``.

They are the methods of one client that has a connection for each event loop that uses it. A
connection ends with its loop; ``close`` ends it earlier, and with the last one the private daemon,
which otherwise stays until the program ends. Given a session object of another client, they are
that client's methods.
"""


def main() -> int:
    """Do what the arguments say and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.unasync", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    old = stale()
    for path, text in old.items():
        if not is_check:
            path.write_text(text, encoding="utf-8")
        state = "out of date, so run make sync" if is_check else "written"
        sys.stdout.write(f"{path.relative_to(ROOT)}: {state}\n")
    return 1 if is_check and old else 0


def stale() -> dict[Path, str]:
    """Return the files that are not as they are made, with what they should hold."""
    return {
        path: text
        for path, text in made().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def made() -> dict[Path, str]:
    """Return every file that is made."""
    sources = {name: (CLIENT / f"{name}.py").read_text(encoding="utf-8") for name in MADE}
    calls = {name: call for one in _CALLED for name, call in _calls(sources[one]).items()}
    if set(calls) != set(CALLS):
        raise SystemExit(f"CALLS of cmdc_runtime/exports.py: {sorted(set(calls) ^ set(CALLS))}")
    sources["session"] = _with_methods(sources["session"], calls)
    unused = [old for old, _ in SUBSTITUTIONS if not re.search(old, "".join(sources.values()))]
    if unused:
        raise SystemExit(f"SUBSTITUTIONS of scripts/unasync.py that nothing needs: {unused}")
    found = {CLIENT / "session.py": sources["session"]}
    for name, text in sources.items():
        found[CLIENT / "sync" / f"{name}.py"] = unasync(text, name)
    owned = {name for name, call in calls.items() if call.is_of_session and call.asks}
    found[ROOT / "cmdc_runtime" / "aio.py"] = _functions(owned, is_async=True)
    found[CLIENT / "functions.py"] = _functions(owned, is_async=False)
    found[ROOT / "cmdc_runtime" / "__init__.pyi"] = _stub()
    found[given_options.TARGET] = given_options.made()
    return {path: _formatted(path, text) for path, text in found.items()}


def unasync(text: str, name: str) -> str:
    """Return the sync form of a module of the async face."""
    body = text.split('"""', 2)[2]
    for old, new in SUBSTITUTIONS:
        body = re.sub(old, new, body)
    source = f"cmdc_runtime/client/{name}.py"
    return f'{_header(source)}"""``cmdc_runtime.client.{name}`` for threads."""{body}'


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the client, as it is written."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    text: str

    @property
    def is_of_session(self) -> bool:
        """Whether it is about one session, which its first argument names."""
        first = (self.node.args.posonlyargs + self.node.args.args)[1:2]
        return bool(first) and "SessionLike" in ast.unparse(first[0].annotation or first[0])

    @property
    def asks(self) -> bool:
        """Whether it comes to a daemon: a coroutine that awaits nothing does not."""
        is_plain = isinstance(self.node, ast.FunctionDef)
        return is_plain or any(isinstance(one, ast.Await) for one in ast.walk(self.node))

    def bound(self) -> str:
        """Return it as a method of the session."""
        signature = self.text[: self.text.index('"""')]
        signature = re.sub(r"\bsession(_id)?: SessionLike,?\s*", "", signature, count=1)
        signature = re.sub(r",\s*\) ->", ") ->", signature)
        summary = (ast.get_docstring(self.node) or "").split("\n\n")[0].replace("\n", "\n        ")
        is_async = isinstance(self.node, ast.AsyncFunctionDef)
        is_silent = ast.unparse(self.node.returns or ast.Constant(None)) == "None"
        verb = ("" if is_silent else "return ") + ("await " if is_async else "")
        handed = ", ".join(("self", *self._handed()))
        answer = f"{verb}self.client.{self.node.name}({handed})"
        return f'{signature}"""{summary}"""\n        {answer}\n'

    def _handed(self) -> Iterator[str]:
        arguments = self.node.args
        yield from (one.arg for one in (arguments.posonlyargs + arguments.args)[2:])
        yield from (f"{one.arg}={one.arg}" for one in arguments.kwonlyargs)
        if arguments.kwarg is not None:
            yield f"**{arguments.kwarg.arg}"


def _calls(source: str) -> dict[str, _Call]:
    """Return the calls that the first class of a module has."""
    kind = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return {
        node.name: _Call(node, "    " + (ast.get_source_segment(source, node) or ""))
        for node in kind.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


def _with_methods(source: str, calls: dict[str, _Call]) -> str:
    """Return the module with the methods of the session that are not written there by hand."""
    before, _, rest = source.partition(BEGIN)
    line, _, rest = rest.partition("\n")
    own = before[before.index("class AsyncSession") :]
    methods = [
        call.bound()
        for name, call in calls.items()
        if call.is_of_session and f"def {name}(" not in own
    ]
    return f"{before}{BEGIN}{line}\n\n" + "\n".join(methods) + "\n" + END + rest.partition(END)[2]


def _functions(owned: set[str], *, is_async: bool) -> str:
    """Return the module with the calls of the client that the process shares.

    For the calls ``owned`` the client of a session object stands in.
    """
    client = "async_client" if is_async else "client"
    lines = [
        f"{name} = of_owner(_client.{name})" if name in owned else f"{name} = _client.{name}"
        for name in CALLS
    ]
    names = sorted([*CALLS, *AIO, "close"] if is_async else CALLS)
    imports = [f"from cmdc_runtime.client.default import {client} as _client"]
    if is_async:
        lines.append("close = _client.close")
        home = "from cmdc_runtime.client"
        imports += [f"{home}.runner import Async{one} as {one}" for one in AIO]
    about = ABOUT_AIO if is_async else ABOUT_FUNCTIONS
    return (
        f'{_header("cmdc_runtime/exports.py")}"""{about}"""\n\n'
        "from cmdc_runtime.client.default import of_owner\n"
        + "\n".join([*imports, *lines, f"__all__ = {names!r}"])
    )


def _stub() -> str:
    """Return what type checkers read of the package."""
    homes = {**dict.fromkeys(MODULES, "cmdc_runtime"), **MODULE_OF}
    imports = [f"from {home} import {name} as {name}" for name, home in homes.items()]
    return _header("cmdc_runtime/exports.py") + "\n".join([*imports, "", "__version__: str"])


def _header(source: str) -> str:
    return f"# Made by `make sync` of {source}: change that, not this.\n"


def _formatted(path: Path, text: str) -> str:
    """Return the text as ``make fmt`` leaves it, without imports that it does not need."""
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    place = ["--stdin-filename", str(path), "-"]
    fixes = ["check", "--fix-only", "--quiet", "--select", "F401,I001"]
    for command in (["format", "--quiet"], fixes, ["format", "--quiet"]):
        text = subprocess.run(  # noqa: S603 - our own tool
            [*ruff, *command, *place], input=text, check=True, capture_output=True, text=True
        ).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
