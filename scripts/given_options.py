"""What type checkers know of the options of ``create_agent`` and ``resume_session``.

``cmdc_runtime/client/given_options.py`` is made of the class ``Options``, field by field, for
``make sync``. A field is typed as there, or as ``WIDER`` says: to take more than what an option
comes to, give it a row.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cmdc_runtime.client.resuming import NOT_RESUMED

SOURCE: Final = Path(__file__).parents[1] / "cmdc_runtime" / "options.py"
TARGET: Final = SOURCE.parent / "client" / "given_options.py"
WIDER: Final[Mapping[str, str]] = {
    "blueprint": "AnyBlueprint | None",
    "config": "Config | None",
    "handoffs": "Several[Handoff | SubAgent | AnyBlueprint | str]",
    "input_guardrails": "Several[AnyGuardrail]",
    "output_guardrails": "Several[AnyGuardrail]",
    "memory_limit": "int | str | None",
    "messages": "Several[AnyMessage]",
    "model": "AnyModel | None",
    "plugins": "Several[AnyPlugin]",
    "reasoning_strategy": "AnyStrategy | None",
    "redact": "AnyRedaction | None",
    "restart_delay": "tuple[float, float]",
    "subagents": "Several[SubAgent]",
    "tools": "Several[AnyTool]",
    "working_dir": "str | PathLike[str]",
    "exit_on": "Several[ExitCondition]",
    "interrupt_immune_tools": "Several[str]",
    "loop_exempt_tools": "Several[str]",
    "tool_env": "Several[str]",
}
"""What may be written for an option, where that is more than its type in ``Options``."""
_ABOUT: Final = '"""What ``create_agent`` and ``resume_session`` take, for type checkers."""'
_IMPORTS: Final = """\
from os import PathLike
from cmdc_runtime.config import Config
from cmdc_runtime.client.option_types import (
    AnyBlueprint, AnyGuardrail, AnyMessage, AnyModel, AnyPlugin, AnyRedaction, AnyStrategy,
    AnyTool, Several,
)
"""


def made() -> str:
    """Return the text of the module, not formatted yet."""
    source = SOURCE.read_text(encoding="utf-8")
    tree = ast.parse(source)
    imports = [
        ast.unparse(one) for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)
    ]
    own = sorted(set(_names_in(tree)))
    fields = list(_fields(tree, source))
    unknown = WIDER.keys() - {name for name, _, _ in fields}
    if unknown:
        raise SystemExit(f"WIDER of scripts/given_options.py: no such options: {sorted(unknown)}")
    changed = [one for one in fields if one[0] not in NOT_RESUMED]
    fixed = [one for one in fields if one[0] in NOT_RESUMED]
    return "\n".join(
        [
            f"# Made by `make sync` of cmdc_runtime/{SOURCE.name}: change that, not this.",
            _ABOUT,
            *imports,
            "from typing import TypedDict",
            f"from cmdc_runtime.options import {', '.join(own)}",
            _IMPORTS,
            *_typed_dict(
                "ChangedOptions", "TypedDict", "What ``resume_session`` may change.", changed
            ),
            *_typed_dict("GivenOptions", "ChangedOptions", "What ``create_agent`` takes.", fixed),
        ]
    )


def _typed_dict(
    name: str, base: str, about: str, fields: list[tuple[str, str, str]]
) -> Iterator[str]:
    yield f"class {name}({base}, total=False):"
    yield f'    """{about} Times are seconds; costs are US dollars."""\n'
    for option, kind, comment in fields:
        if comment:
            yield f"    # {comment}"
        yield f"    {option}: {kind}"
    yield "\n"


def _names_in(tree: ast.Module) -> Iterator[str]:
    """Yield what the module defines itself."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def _fields(tree: ast.Module, source: str) -> Iterator[tuple[str, str, str]]:
    """Yield each option with its type and its comment."""
    kind = next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "Options")
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            said = " ".join(comments[line] for line in lines if line in comments)
            yield name, WIDER.get(name, ast.unparse(node.annotation)), re.sub(r"\s+", " ", said)
