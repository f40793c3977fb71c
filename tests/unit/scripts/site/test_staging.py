"""Of a repository's pages the site gets a copy in which each link leads somewhere."""

from pathlib import Path

import pytest

from scripts.site.__main__ import fetched
from scripts.site.staging import Staging, navigation


@pytest.fixture
def root(tmp_path):
    """A repository with pages, an example, a test and a picture."""
    found = tmp_path / "root"
    links = "[a](docs/howto/a.md#part) [all](docs/howto) [run](examples/01_run.py)"
    code = "```\n[x](examples/01_run.py)\n```"
    for path, text in {
        "README.md": f"# Home\n\n{links}\n",
        "docs/howto/a.md": f"# How to A\n\n[test](../../tests/test_a.py)\n\n{code}\n",
        "docs/adr/README.md": "# Decisions\n",
        "examples/01_run.py": "print(1)\n",
        "tests/test_a.py": "assert True\n",
        "docs/picture.svg": "<svg/>",
    }.items():
        (found / path).parent.mkdir(parents=True, exist_ok=True)
        (found / path).write_text(text)
    return found.resolve()


def test_pages_lie_where_they_lay(root, tmp_path):
    """Links between pages hold; a folder is a list, an example a page, a test a copy."""
    target = tmp_path / "target"
    pages = Staging(root, target).fill()

    assert set(map(str, pages)) == {
        "README.md",
        "docs/howto/a.md",
        "docs/adr/README.md",
        "examples/01_run.md",
    }
    assert (target / "README.md").read_text() == (
        "# Home\n\n[a](docs/howto/a.md#part) [all](docs/howto/index.md) [run](examples/01_run.md)\n"
    )
    assert (target / "docs/howto/index.md").read_text() == "# Howto\n\n- [How to A](a.md)\n"
    assert "print(1)" in (target / "examples/01_run.md").read_text()
    assert (target / "tests/test_a.py").exists()
    assert (target / "docs/picture.svg").exists()
    assert "[x](examples/01_run.py)" in (target / "docs/howto/a.md").read_text()


def test_what_was_there_is_gone(root, tmp_path):
    """A page that the repository has no more is not in the site."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.md").write_text("")
    Staging(root, target).fill()

    assert not (target / "old.md").exists()


def test_the_menu_has_each_page_once():
    """Parts are in their order, and what has no part is of the project."""
    pages = map(Path, ("README.md", "CHANGELOG.md", "docs/howto/a.md", "docs/wire.md", "api/x.md"))

    assert navigation(pages) == [
        {"Home": "README.md"},
        {"How to": ["docs/howto/a.md"]},
        {"Python reference": ["api/x.md"]},
        {"Project": ["CHANGELOG.md", "docs/wire.md"]},
    ]


def test_what_a_browser_would_fetch_is_found(tmp_path):
    """An asset of another host is reported; a link that a person follows is none."""
    (tmp_path / "a.html").write_text(
        '<a href="https://x.example/"><script src="https://x.example/a.js"></script><img src=b.svg>'
    )

    assert fetched(tmp_path) == ['a.html: <script src="https://x.example/a.js']
