"""What the documents and the lock file promise is there.

Both rot without a sound: a link outlives its page, a new dependency never reaches the lock file.
"""

import ast
import builtins
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import cmdc_runtime as cmdc
from cmdc_runtime import exports

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"`[^`\n]+`")
NAMED = re.compile(r"`([a-z_]+)[`(]")
MAKE_CALL = re.compile(r"`make ([a-z-]+)|^ {4}make ([a-z-]+)", re.MULTILINE)
MAKE_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
BY_HAND_LINES_MAX = 150
MODULE = re.compile(r"[\w./-]+\.py")
CLASS = re.compile(r"(?<![\w/.-])[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)*\b(?![/=-])")
DEFINED = re.compile(
    r"\bclass (\w+)|^([A-Z]\w*)\b.*? = |^ +(\w+),$|^(?:from|import) (.+)", re.MULTILINE
)
SUPERSEDED = re.compile(r"^Status: superseded", re.MULTILINE)
TREE = ("cmdc_runtime", "supervisor", "workers", "scripts", "benchmarks", "tests", "examples")
FOR_DEVELOPERS = {
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/STYLE.md",
    "docs/glossary.md",
    "docs/invariants.md",
    "docs/wire.md",
}
NO_MODULES = {
    "README.md": {"examples/NAME.py"},
    "docs/adr/0003-code-by-value.md": {"beside.py"},  # a user's
    "docs/adr/0042-decide-record-evolve.md": {  # what its steps removed
        "quotes.py",
        "replaying_inputs.py",
        "replaying_paths.py",
    },
    "docs/howto/sandboxes.md": {"src/a.py"},
}
"""What looks like a module of ours on a page, and is none by design."""
NO_CLASSES = {
    "docs/adr/0003-code-by-value.md": {"Struct"},  # msgspec's
    "docs/adr/0040-journal-operations-are-values.md": {"QueuedJournal"},  # what it replaced
    "docs/adr/0042-decide-record-evolve.md": {"Consulting", "Keep", "ToolTold"},  # of its steps
    "docs/adr/0043-the-house-in-slices.md": {  # tried on branches that were not kept
        "AfterModelSwitch",
        "BeforeToolBatch",
        "PromotePrompt",
    },
    "docs/STYLE.md": {"TaskGroup"},  # asyncio's
}
"""The same of classes; those of other projects are known by an import of ours."""
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pages():
    """Return every page of prose with its text."""
    paths = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
    return [(path, path.read_text(encoding="utf-8")) for path in paths]


def test_links_lead_somewhere():
    """A relative link names a file of the project; what looks like one in code is none."""
    found = [
        f"{path.relative_to(ROOT)}: {target}"
        for path, text in pages()
        for target in LINK.findall(CODE.sub("", text))
        if not (path.parent / target).exists()
    ]

    assert found == [], "\n".join(found)


def current_pages():
    """Yield each page that speaks of the code of today, by its name."""
    for path, text in pages():
        if path.name != "CHANGELOG.md" and not SUPERSEDED.search(text):
            yield str(path.relative_to(ROOT)), text


def test_modules_that_are_named_exist():
    """A module stands on a page by its path, or by the end of it, and follows when it moves."""
    known = {
        "/".join(path.parts[at:])
        for top in TREE
        for path in (one.relative_to(ROOT) for one in (ROOT / top).rglob("*.py"))
        for at in range(len(path.parts))
    }
    found = [
        f"{page}: {word}"
        for page, text in current_pages()
        for code in CODE.findall(text)
        for word in (one.partition("::")[0] for one in code.strip("`").split())
        if MODULE.fullmatch(word) and word not in known | NO_MODULES.get(page, set())
    ]

    assert found == [], "\n".join(found)


def test_classes_that_are_named_exist():
    """What a decision record or a page for developers calls a class is one."""
    known = {
        name
        for top in TREE
        for path in (ROOT / top).rglob("*.py")
        for groups in DEFINED.findall(path.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", " ".join(groups))
    }
    found = [
        f"{page}: {word}"
        for page, text in current_pages()
        if page.startswith("docs/adr/") or page in FOR_DEVELOPERS
        for code in CODE.findall(text)
        for word in CLASS.findall(code)
        if word not in known | NO_CLASSES.get(page, set()) | set(dir(builtins))
    ]

    assert found == [], "\n".join(found)


def test_calls_that_are_named_are_public():
    """What the client is made of is for nobody to call, so no page names it as a call."""
    homes = [getattr(cmdc, name) for name in cmdc.__all__]
    public = {*exports.CALLS, *cmdc.__all__}.union(*map(dir, homes))
    for home in homes:
        public.update(getattr(home, "__annotations__", ()))
    own = {
        node.name
        for path in (ROOT / "cmdc_runtime" / "client").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "_" in node.name.strip("_")
    } - public
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in pages()
        for name in NAMED.findall(text)
        if name in own
    ]

    assert found == [], "\n".join(found)


def test_make_targets_exist():
    """What a page asks the reader to make is a target of the Makefile."""
    targets = set(MAKE_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    found = [
        f"{path.relative_to(ROOT)}: make {name}"
        for path, text in pages()
        for call in MAKE_CALL.findall(text)
        if (name := "".join(call)) not in targets
    ]

    assert found == [], "\n".join(found)


def test_lock_file_covers_the_core_dependencies():
    """Each core dependency is locked at a version that ``pyproject.toml`` allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = dict(LOCKED.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    found = [
        f"{need}: locked at {version}, so run make lock"
        for need in map(Requirement, project["dependencies"])
        if (version := locked.get(need.name.lower())) is None
        or Version(version) not in need.specifier
    ]

    assert found == [], "\n".join(found)


def test_the_readme_shows_the_quickstart():
    """The script of the README is the example that the tests run."""
    shown = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = (ROOT / "examples" / "01_quickstart.py").read_text()

    assert shown is not None
    assert example.endswith(shown.group(1))


def test_the_version_is_said_once():
    """The package's version is the project's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    written = re.search(r'VERSION: Final = "(.+)"', (ROOT / "cmdc_runtime/version.py").read_text())

    assert written is not None
    assert written.group(1) == project["version"]


def test_the_view_from_above_is_short():
    """What is written by hand in ARCHITECTURE.md is read in one go; detail has its own pages."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    by_hand = re.sub(r"<!-- (\S+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)

    assert len(by_hand.splitlines()) <= BY_HAND_LINES_MAX


@pytest.mark.parametrize("package", ["cmdc_runtime", "supervisor", "workers"])
def test_the_map_has_every_package(package):
    """Each folder right below one of the three, by its name."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = re.search(rf"^    {package}/ .*\n(?:      .*\n)+", text, re.MULTILINE)
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}

    assert section is not None
    assert folders <= set(re.findall(r"(\w+)/(?=\s)", section[0]))


def test_the_invariants_name_tests_that_are_there():
    """Every test that docs/invariants.md relies on exists."""
    text = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`]+)`", text)
    missing = [name for name in named if not (ROOT / name).exists()]

    assert named != []
    assert missing == []
