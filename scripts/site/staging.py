"""The folder that the site is made of: the pages of the repository, where they lie in it.

So links between pages hold as they are. What else a page links to is made a page (an example), is
copied (a picture, a test), or, if it is a folder, becomes a list of the pages in it. To have more
in the site, add it to ``PAGES``.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PAGES: Final = ("*.md", "benchmarks/*.md", "docs/**/*.md", "docs/**/*.svg")
SHOWN: Final = "examples/**/*.py"
"""Programs that are pages, with their code."""
HOME: Final = Path("README.md")
LINK: Final = re.compile(r"(?<!!)(\[[^\]]*\]\()(?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
PARTS: Final = {
    "tutorial": "The first hour",
    "howto": "How to",
    "examples": "Examples",
    "api": "Python reference",
    "reference": "Reference",
    "discussion": "Background",
    "adr": "Decisions",
    "": "Project",
}
"""The parts of the menu, by the folder of their pages; what has no part is of the project."""
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


class Staging:
    """Fills one folder; ``root`` is the repository."""

    def __init__(self, root: Path, target: Path) -> None:
        """Fill nothing yet; what is in ``target`` is removed."""
        self._root = root
        self._target = target
        shutil.rmtree(target, ignore_errors=True)

    def fill(self) -> list[Path]:
        """Return the pages, relative to the folder; each is there with all that it links to."""
        found = [path for pattern in PAGES for path in sorted(self._root.glob(pattern))]
        pages = [path.relative_to(self._root) for path in found if path.suffix == ".md"]
        for path in found:
            place = self._target / path.relative_to(self._root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                place.write_text(self._page(path), encoding="utf-8")
            else:
                shutil.copyfile(path, place)
        programs = sorted(self._root.glob(SHOWN))
        for program in programs:
            self._show(program)
        return [*pages, *(page_of(one.relative_to(self._root)) for one in programs)]

    def _page(self, path: Path) -> str:
        """Return a page whose links lead to what the site has."""
        parts = _FENCE.split(path.read_text(encoding="utf-8"))
        return "".join(
            part if at % 2 else LINK.sub(lambda found: self._link(path.parent, found), part)
            for at, part in enumerate(parts)
        )

    def _link(self, folder: Path, found: re.Match[str]) -> str:
        opening, target, anchor = found[1], found[2], found[3] or ""
        goal = (folder / target).resolve()
        if goal.suffix == ".md" or not goal.exists():  # what is not there the build complains of
            return found[0]
        inside = goal.relative_to(self._root)
        if goal.is_dir():
            return f"{opening}{target.rstrip('/')}/{self._list(inside)}{anchor})"
        if goal.suffix == ".py" and inside.parts[0] == "examples":
            return f"{opening}{target.removesuffix('.py')}.md{anchor})"
        place = self._target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(goal, place)
        return found[0]

    def _list(self, folder: Path) -> str:
        """Make the page that stands for a folder; return its name."""
        source = self._root / folder
        if (source / HOME).exists():
            return HOME.name
        names = [*source.glob("*.md"), *(source.glob("*.py") if "examples" in folder.parts else ())]
        lines = [f"- [{_title(one)}]({page_of(Path(one.name))})" for one in sorted(names)]
        place = self._target / folder / "index.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"# {folder.name.capitalize()}\n\n" + "\n".join(lines) + "\n", "utf-8")
        return place.name

    def _show(self, program: Path) -> None:
        place = self._target / page_of(program.relative_to(self._root))
        place.parent.mkdir(parents=True, exist_ok=True)
        code = program.read_text(encoding="utf-8")
        place.write_text(f"# {_title(program)}\n\n```python\n{code}```\n", encoding="utf-8")


def page_of(path: Path) -> Path:
    """Return where the page of a file is."""
    return path.with_suffix(".md")


def navigation(pages: Iterable[Path]) -> list[dict[str, str | list[str]]]:
    """Return the menu: the home page, the parts with their pages, and the pages of the root."""
    parts: dict[str, list[str]] = {title: [] for title in PARTS.values()}
    for page in pages:
        folder = page.parent.name if page.parts[0] == "docs" else page.parts[0]
        if page != HOME:
            parts[PARTS.get(folder, "Project")].append(str(page))
    menu: list[dict[str, str | list[str]]] = [{"Home": str(HOME)}]
    menu += [{title: found} for title, found in parts.items() if found]
    return menu


def _title(path: Path) -> str:
    if path.suffix == ".md":
        found = _TITLE.search(path.read_text(encoding="utf-8"))
        return found[1] if found else path.stem
    return path.stem.replace("_", " ")
