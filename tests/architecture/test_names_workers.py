"""A public class of ``workers`` has a name of its own: a reader who knows one knows all of them."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "workers"

PAIRS_BY_DESIGN: dict[str, str] = {}
"""Names that two classes of the package share on purpose, and why."""


def public_names(module):
    """Yield the public classes and type aliases of a module."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name
            case _:
                pass


def test_a_public_class_name_is_unique_in_the_package():
    """A type alias counts as a class: a reader cannot tell them apart where they are used."""
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in public_names(ast.parse(path.read_text())):
            if not name.startswith("_"):
                places[name].append(str(path.relative_to(PACKAGE)))
    doubles = {name: found for name, found in places.items() if len(found) > 1}

    assert doubles.keys() == PAIRS_BY_DESIGN.keys(), doubles
