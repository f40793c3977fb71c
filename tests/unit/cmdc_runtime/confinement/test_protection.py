"""Which paths are protected, by their names."""

import pytest

from cmdc_runtime.confinement.policy import PROTECTED
from cmdc_runtime.confinement.protection import is_protected


@pytest.mark.parametrize(
    ("path", "is_so"),
    [
        (".git/hooks", True),
        (".git/hooks/pre-commit", True),
        (".git/config", True),
        (".GIT/Hooks/x", True),
        ("sub/.git/config", True),
        ("a/b/c/d/e/f/.git/hooks/x", True),
        (".vscode/tasks.json", True),
        (".vscode", True),
        ("sub/.vscode/tasks.json", False),
        (".git", False),
        (".git/HEAD", False),
        (".git/configuration", False),
        ("git/hooks/x", False),
        ("hooks", False),
        ("", False),
    ],
)
def test_a_path_is_protected_or_not(path, is_so):
    """Those of a repository wherever it lies, the others in the folder itself."""
    assert is_protected(path.split("/"), PROTECTED) is is_so


def test_nothing_is_protected_where_nothing_is_named():
    """An application may say so."""
    assert not is_protected([".git", "hooks"], ())
