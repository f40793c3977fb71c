"""One word for one thing: a public class's name is its own, and old words are gone.

docs/glossary.md has the words. A name that is found twice gets a word of its own in one of the
places, or a row in ``PAIRS`` with the reason for which both are right.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIRS: dict[str, dict[str, str]] = {
    "cmdc_runtime": {
        "Abort": "a client's command, and the action of a plugin that comes to the same",
        "Answer": "public: of a tool, of a scripted model; beside them the frame that carries one",
        "AskUser": "the built-in tool's reference, and the event that it leads to",
        "GuardrailTripped": "the event, and the error of who waits for the cycle",
        "Monitor": "what an application holds, and the request that it stands for",
        "Request": "a client's to the daemon; public in testing: a session's to a scripted model",
        "StartFailed": "the error of who starts a session, and the reason that its monitors get",
        "SwitchModel": "a client's command, and the action of a plugin that comes to the same",
        "ToolCalls": "the event, and the step of a scripted answer that leads to it",
    },
    "supervisor": {},
    "workers": {},
}
"""Names that stand twice in a package on purpose: they mean one thing seen from two sides."""
WITH_ALIASES = {"cmdc_runtime", "supervisor", "workers"}
"""Where no type alias repeats a class's name, however it is written."""
OLD_WORDS = frozenset(
    (
        *("adrift", "allowance", "aside", "beat", "blame", "board", "briefing", "burial", "buried"),
        *("bury", "cell", "cells", "checkup", "chores", "condemn", "consent", "consult", "cradle"),
        *("crew", "cry", "desk", "door", "doors", "doom", "doomed", "doze", "drifting", "ear"),
        *("employer", "feed", "forsake", "frontdesk", "guidance", "hall", "hands", "heed"),
        *("heeding", "hire", "hired", "hiring", "home", "homes", "house", "inbox", "inquest"),
        *("keeper", "keeping", "kit", "leash", "ledger", "meet", "mending", "nursery", "obituary"),
        *("owed", "parcel", "parcels", "passage", "people", "pulse", "receipt", "receipts"),
        *("roll", "rooms", "roster", "settle", "settled", "strike", "subjects", "tell", "told"),
        *("topics", "unsettled", "vitals", "ward", "wards", "ways", "workforce"),
    )
)
"""Of the glossary of before, as parts of names; what is also a plain English verb is left out."""
STAYING = {
    "cmdc_runtime": {
        "NurseryLost": "a public reason, which code by value in journals may name",
        "PromptReceipt": "what the contract calls the answer to a prompt",
        "RecordSetAside": "a public event",
        "SteerReceipt": "what the contract calls the answer to a steering",
        "feed": "a method that text filters of applications have",
        "people": "the module of public events, which code by value in journals may name",
    },
    "supervisor": {
        "set_aside": "a field of the wire, after the public event RecordSetAside",
    },
    "workers": {
        "SetAside": "a record of journals",
        "session_starts_set_aside": "who makes that record, which the event RecordSetAside reports",
        "set_aside": "the same",
        "set_tool_aside": "the same",
        "_set_aside": "the same",
        "feed": "what text filters of applications are asked by",
        "_feed": "the same",
    },
}
"""Names with such a word that stay, since people outside, journals or the wire have them."""
IN_SENTENCES = frozenset(
    (
        *("allowance", "aside", "beat", "board", "bury", "cell", "cells", "consent", "cry", "desk"),
        *("door", "doors", "ear", "feed", "hall", "hands", "hire", "home", "homes", "keeping"),
        *("kit", "ledger", "meet", "owed", "passage", "people", "receipt", "receipts", "roll"),
        *("rooms", "settle", "settled", "strike", "subjects", "tell", "told", "topics", "ways"),
    )
)
"""Old words that are plain ones in the name of a test, which is a sentence, or in an example."""
INFLECTED = {
    form: word
    for word, forms in {
        "blame": ("blamed", "blames", "blaming"),
        "consult": ("consulted", "consulting", "consults"),
        "doze": ("dozed", "dozes", "dozing"),
        "forsake": ("forsaken", "forsakes"),
        "heed": ("heeded", "heeds"),
        "keeper": ("keepers",),
    }.items()
    for form in forms
}
"""Forms in which an old word comes up in sentences."""
STAYING_BESIDE = {
    "scripts": {
        "House": "the daemon that the soak, the matrix and the fuzzing may kill: runs of hours",
        "house": "the same, and its module",
        "nursery_lost": "a play named after the public reason",
    },
    "tests": {"parcel": "what an example of the documentation sends"},
}
"""Names with such a word that stay in tests and scripts, and why."""


OLD_EVENT_WORDS = OLD_WORDS | {"mended"}
"""Of the log's events; a text may be mended, a journal is repaired."""
STAYING_EVENTS = {
    "command.set_aside": "after the public event RecordSetAside",
    "consent.not_kept": "a person's to a skill, which howto, status and a folder of the state name",
}
"""Log events with such a word that stay."""


@cache
def trees(package):
    """Return the syntax tree of each module of a package, by its path."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert len(paths) > 100
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
    }


def doubles(modules, *, with_aliases=False):
    """Return where each name of a public class stands that stands in more than one module.

    A type alias of the name may count, too: a reader can't distinguish them where they are used.
    Several aliases of one name, of which none is a class's, are those of their modules.
    """
    found = defaultdict(set)
    of_classes = set()
    for path, tree in modules.items():
        for node in tree.body:
            name = name_of_class(node, with_aliases=with_aliases)
            if name is not None and not name.startswith("_"):
                found[name].add(path)
            if isinstance(node, ast.ClassDef):
                of_classes.add(name)
    return {name: sorted(found[name]) for name in found.keys() & of_classes if len(found[name]) > 1}


def name_of_class(node, *, with_aliases):
    """Return the name of the class, or type alias, that a statement makes; None: it makes none."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
            return name if with_aliases else None
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()):
            return name if with_aliases and _is_camel_case(name) else None
        case _:
            return None


def _is_camel_case(name):
    """Say whether a name is written as those of classes are, and not as those of constants."""
    return name[:1].isupper() and not name.isupper()


def names(path, tree):
    """Yield the name of a module, and those of its classes and functions, however deep."""
    module = Path(path)
    yield module.parent.name if module.stem == "__init__" else module.stem
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def log_events(tree):
    """Yield the log events that a module has, wherever it hands their name on."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if re.fullmatch(r"[a-z_]+\.[a-z_]+", text):
                yield text


def bound_names(path, tree):
    """Yield what ``names`` does, and each variable, argument and attribute that is bound."""
    yield from names(path, tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def old_words(name, words=OLD_WORDS):
    """Return the old words among the parts of a name, in either spelling."""
    parts = (part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))
    return {INFLECTED.get(part, part) for part in parts} & words


@pytest.mark.parametrize("package", PAIRS)
def test_a_public_class_has_a_name_of_its_own(package):
    """In its package: who reads a name knows which class it is; a row about nothing goes."""
    found = doubles(trees(package), with_aliases=package in WITH_ALIASES)

    assert found.keys() == PAIRS[package].keys(), found


def test_a_double_is_noticed():
    """Of public classes of two modules; one module may have a class of the name in a function."""
    modules = {
        "a.py": ast.parse("class One: ...\nclass _Own: ..."),
        "b.py": ast.parse("class One: ...\nclass _Own: ...\nclass Two: ..."),
        "c.py": ast.parse("def two():\n    class Two: ..."),
    }

    assert doubles(modules) == {"One": ["a.py", "b.py"]}


@pytest.mark.parametrize(
    "alias", ["One: TypeAlias = int", "One = Callable[[], None]", "One = int | str"]
)
def test_an_alias_of_a_class_s_name_is_noticed(alias):
    """However it is written; one of an alias's name is not, nor is a constant."""
    modules = {
        "a.py": ast.parse("class One: ...\nTwo = int | str\nCALLS = ONE[0]"),
        "b.py": ast.parse(f"{alias}\nTwo = int | str\nclass CALLS: ..."),
    }

    assert doubles(modules, with_aliases=True) == {"One": ["a.py", "b.py"]}
    assert doubles(modules) == {}


@pytest.mark.parametrize("package", STAYING)
def test_no_old_word_is_part_of_a_name(package):
    """Of a module, class or function, but for those that stay, of which each is found."""
    listed = STAYING[package].keys()
    found = {
        (path, name)
        for path, tree in trees(package).items()
        for name in names(path, tree)
        if old_words(name)
    }

    assert {(path, name) for path, name in found if name not in listed} == set()
    assert {name for _, name in found} == listed


def test_no_old_word_is_part_of_a_log_event():
    """But of those that stay, of which each is found."""
    found = {
        event
        for package in PAIRS
        for tree in trees(package).values()
        for event in log_events(tree)
        if old_words(event, OLD_EVENT_WORDS)
    }

    assert found == STAYING_EVENTS.keys()


@pytest.mark.parametrize("folder", STAYING_BESIDE)
def test_no_old_word_is_part_of_a_name_beside_the_product(folder):
    """Of anything that is bound in tests and scripts; a plain word may stand in a sentence."""
    found = {
        (path, name)
        for path, tree in trees(folder).items()
        for name in bound_names(path, tree)
        if old_words(name) - IN_SENTENCES
    }

    assert {one for one in found if one[1] not in STAYING_BESIDE[folder]} == set()
    assert {name for _, name in found} == STAYING_BESIDE[folder].keys()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_no_agent_is_blamed", {"blame"}),
        ("Parcel", {"parcel"}),
        ("open_parcels", {"parcels"}),
        ("HeartbeatBoard", {"board"}),
        ("_told", {"told"}),
        ("Heartbeat", set()),
        ("EXIT_HOME", {"home"}),
        ("toldless", set()),
    ],
)
def test_a_word_is_a_part_of_a_name(name, words):
    """In CamelCase and in snake_case, and as a whole."""
    assert old_words(name) == words
