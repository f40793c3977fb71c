"""A built-in plugin names in ``emits`` which events it has: those that its source emits.

The names are read from the calls of ``Emit`` in its module and in the private ones that it uses. A
name that is a variable there is not known so; what ``emits`` says beyond those that are known must
at least be a text of these modules, and where no name is a variable there is nothing beyond them.
"""

import ast
import importlib
import inspect
import pkgutil

import msgspec
import pytest

from cmdc_runtime.extensions.actions import KERNEL_EMITS
from cmdc_runtime.reasons import snake
from workers.builtin import plugins as package

MODULES = [module.name for module in pkgutil.iter_modules(package.__path__)]
NAMES = sorted(name for name in MODULES if name[0] != "_")
PRIVATE = {f"{package.__name__}.{name}" for name in MODULES if name[0] == "_"}


def sources_of(module, seen=frozenset()):
    """Yield a module with its parsed source, and the private modules of the package it uses."""
    tree = ast.parse(inspect.getsource(module))
    yield module, tree
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    paths = {node.module for node in imports}
    paths |= {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    for path in sorted((paths & PRIVATE) - seen):
        yield from sources_of(importlib.import_module(path), seen | paths)


def emitted(module, tree):
    """Yield a name for each event that is emitted, None where the source alone does not say."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Emit"), args=[first, *_]):
                yield from names_in(module, first)


def names_in(module, node):
    """Yield the names of the events that the first argument of an ``Emit`` stands for."""
    match node:
        case ast.Constant(value=str() as name):
            yield name
        case ast.Tuple(elts=[first, _]):
            yield from names_in(module, first)
        case ast.List(elts=events):
            for event in events:
                yield from names_in(module, event)
        case ast.Name(id=known) | ast.Call(func=ast.Name(id=known)):
            yield name_of(getattr(module, known, None))
        case _:
            yield None


def name_of(known):
    """Return the name that a constant is, or that events of a class have."""
    if isinstance(known, type) and issubclass(known, msgspec.Struct):
        return snake(known.__name__)
    return known if isinstance(known, str) else None


def texts_in(tree):
    """Return the texts that stand in a source."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


@pytest.mark.parametrize("name", NAMES)
def test_events_are_those_that_the_source_emits(name):
    """None is left out, and none is made up; orders to the session are no events."""
    module = importlib.import_module(f"{package.__name__}.{name}")
    declared = module.create.emits
    sources = list(sources_of(module))
    found = {event for used, tree in sources for event in emitted(used, tree)} - set(KERNEL_EMITS)
    known = found - {None}
    beyond = set(declared) - known
    texts = set().union(*(texts_in(tree) for _, tree in sources))

    assert isinstance(declared, tuple)
    assert sorted(set(declared)) == sorted(declared)
    assert known - set(declared) == set(), "emitted, and not in emits"
    assert set(declared) & set(KERNEL_EMITS) == set(), "a kernel emit, which observers do not get"
    assert beyond - texts == set(), "in emits, and nowhere in the source"
    assert bool(beyond) == (None in found), "an Emit names a variable: which events can it be?"
