"""Every hook is asked by the kernel: a class that nothing asks is a promise that nobody keeps."""

import ast
from pathlib import Path

from cmdc_runtime.extensions.hooks import HOOKS

ROOT = Path(__file__).parents[2]


def test_every_hook_is_asked():
    """A new hook needs its place in ``workers``, where it is made with its fields."""
    kernel = (ROOT / "workers").rglob("*.py")
    sources = [path for path in kernel if "builtin" not in path.parts]
    made = {
        node.func.id
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert [hook.__name__ for hook in HOOKS.values() if hook.__name__ not in made] == []
