"""One word for one thing: a public class name of the daemon's package stands for one class."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "supervisor"
PAIRS = frozenset[str]()
"""Names that two classes have by design."""


def test_a_public_class_name_is_unique_in_the_package():
    """Who reads a name has one place to look it up; a pair by design stands in ``PAIRS``."""
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    doubles = {name: found for name, found in places.items() if len(found) > 1}
    assert doubles.keys() == PAIRS, doubles
