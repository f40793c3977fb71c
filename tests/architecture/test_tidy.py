"""The house style, where a machine can check it; every offender is reported as ``file:line``.

A call of ``sleep`` that is no wait of the test says so: ``# tidy: <reason>``. To add a rule, write
one test that lists the offenders it finds; every rule gets the sources parsed, as ``Source``.
"""

import ast
import gc
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cmdc_runtime", "supervisor", "workers")
SCRIPTS = ("benchmarks", "examples", "scripts")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".txt", ".service", ".sh", ""}
TEXT_FILES = (".ci/run", "Makefile", "*.md", "*.toml", "*.txt", "*.lock")
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
NESTING_MAX = 3
BANNED_NAMES = {"common", "data", "helper", "helpers", "info", "manager", "misc", "util", "utils"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
LOG_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)+")
TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
HOME_PATH = re.compile(r"(?<![\w.])/(root|home/\w+|Users/\w+)/")
EXCUSE = re.compile(r"# tidy: \w+")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    def at(self, line, word=""):
        """Name a place in this file the way editors understand it."""
        return f"{self.path.relative_to(ROOT)}:{line}{word and ' ' + word}"

    def excused(self, line):
        """Say whether the line carries the reason why it breaks a rule."""
        return EXCUSE.search(self.text.splitlines()[line - 1]) is not None

    def functions(self):
        """Yield every function, nested ones too."""
        return (node for node in self.nodes if isinstance(node, Function))

    def calls(self):
        """Yield every call with the name of what is called, ``a.b`` as ``b``."""
        for node in self.nodes:
            match node:
                case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                    yield name, node


@cache
def sources(*folders):
    """Return the Python files below the folders, those that are not there yet left out."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    gc.disable()  # a million nodes that stay, which every collection would look at
    try:
        return [source(path) for path in paths]
    finally:
        gc.freeze()
        gc.enable()


@cache
def source(path):
    """Return one file; all rules share its tree."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, path)
    return Source(path, text, tree, tuple(ast.walk(tree)))


def shipped():
    """Return what a wheel holds."""
    return sources(*PACKAGES)


def everything():
    """Return every Python file of the project."""
    return sources(*PACKAGES, *SCRIPTS, "tests")


def text_files():
    """Yield every file of prose, code and configuration, this one included."""
    for pattern in TEXT_FILES:
        yield from ROOT.glob(pattern)
    for folder in (*PACKAGES, *SCRIPTS, "tests", "docs", "deploy"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT_SUFFIXES:
                yield path


def test_files_are_short():
    """A file that grows beyond the limit holds two ideas: split it along them."""
    found = [
        source.at(FILE_LINES_MAX + 1, f"{lines} lines")
        for source in everything()
        if (lines := source.text.count("\n")) > FILE_LINES_MAX
    ]

    assert found == [], "\n".join(found)


def test_functions_are_short():
    """The limit is on the longest function, since that is where everything meets."""
    found = [
        source.at(node.lineno, f"{node.name}: {lines} lines")
        for source in everything()
        for node in source.functions()
        if (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES_MAX
    ]

    assert found == [], "\n".join(found)


def test_blocks_are_shallow():
    """What is nested deeper is a function that lacks a name."""
    found = [
        source.at(node.lineno, f"{node.name}: {depth} blocks deep")
        for source in everything()
        for node in source.functions()
        if (depth := nesting(node)) > NESTING_MAX
    ]

    assert found == [], "\n".join(found)


def nesting(node):
    """Count the blocks within blocks below a node.

    An ``elif`` stands beside its ``if``, and a ``with`` opens no path to follow.
    """
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and node.orelse == [child]
        opens = isinstance(child, Block) and not is_elif
        deepest = max(deepest, nesting(child) + opens)
    return deepest


def test_every_module_says_what_it_is_for():
    """A module opens with a docstring; an empty package needs none."""
    found = [
        source.at(1)
        for source in everything()
        if source.text.strip() and not ast.get_docstring(source.tree)
    ]

    assert found == [], "\n".join(found)


def test_module_names_are_nouns_of_the_domain():
    """A name that fits any content invites any content."""
    paths = {part for source in everything() for part in [source.path, *source.path.parents]}
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(paths)
        if path.is_relative_to(ROOT) and banned(path.stem.removeprefix("test_"))
    ]

    assert found == [], "\n".join(found)


def banned(name):
    """Say whether one of the words of a module's name is an empty one."""
    return not BANNED_NAMES.isdisjoint(name.strip("_").split("_"))


def test_open_ends_name_their_issue():
    """What is left to do is an issue, and the line names it: ``TODO(#12)``."""
    found = [
        source.at(number, match[0])
        for source in everything()
        if source.path != Path(__file__)
        for number, line in enumerate(source.text.splitlines(), 1)
        if (match := TODO.search(line))
    ]

    assert found == [], "\n".join(found)


def test_nothing_is_left_unimplemented():
    """What does not work is not there: no option, method or branch that only raises."""
    found = [
        source.at(node.lineno)
        for source in everything()
        for node in source.nodes
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node)
    ]

    assert found == [], "\n".join(found)


def test_tests_do_not_sleep():
    """A test waits for the event itself, with a bound; a sleep is a race or a waste.

    ``sleep(0)`` waits for nothing, it lets others have their turn.
    """
    found = [
        source.at(node.lineno)
        for source in sources("tests")
        for name, node in source.calls()
        if name == "sleep" and not is_yield(node) and not source.excused(node.lineno)
    ]

    assert found == [], "\n".join(found)


def is_yield(call):
    """Say whether a call's only argument is a literal 0."""
    match call.args:
        case [ast.Constant(value=0)]:
            return True
    return False


def test_every_test_states_its_rule():
    """The docstring of a test is one sentence, the rule that the test guards."""
    found = [
        source.at(node.lineno, node.name)
        for source in sources("tests")
        for node in source.functions()
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert found == [], "\n".join(found)


def test_log_events_are_literal():
    """A log event is a constant ``noun.past_participle``; what varies goes into fields."""
    found = [
        source.at(node.lineno, ast.unparse(node))
        for source in shipped()
        for name, node in source.calls()
        if name in LOG_METHODS and is_log(node.func) and not is_log_name(node.args)
    ]

    assert found == [], "\n".join(found)


def is_log(func):
    """Say whether a method is called on ``log`` or on some object's ``log``."""
    return isinstance(func, ast.Attribute) and ast.unparse(func.value).split(".")[-1] in (
        "log",
        "_log",
    )


def is_log_name(args):
    """Say whether the first argument is a fixed event name."""
    match args:
        case [ast.Constant(value=str() as name), *_]:
            return LOG_NAME.fullmatch(name) is not None
    return False


def test_no_file_names_a_home():
    """The project works wherever it is put, so no line names a folder of one machine."""
    found = [
        f"{path.relative_to(ROOT)}:{number} {match[0]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := HOME_PATH.search(line))
    ]

    assert found == [], "\n".join(found)
