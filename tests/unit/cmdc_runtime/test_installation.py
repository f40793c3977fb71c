"""What is said of the installed packages, on folders that look like installations."""

import base64
import hashlib

import pytest

from cmdc_runtime import installation
from cmdc_runtime.installation import has_supervisor_beside, package_problem

OURS = "OURS = True\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder for packages, the first on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def put(home, name, package, text, *, recorded=True):
    """Install a distribution with one package of one file."""
    path = home / package / "__init__.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    info = home / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    row = f"{package}/__init__.py,sha256={digest},{len(text)}\n"
    (info / "RECORD").write_text(row if recorded else "")
    if not recorded:
        (info / "top_level.txt").write_text(f"{package}\n")


def test_an_installation_of_its_own_is_whole(home):
    """Ours alone has no problem, and neither has a checkout that pip has not noted."""
    put(home, "cmdc-runtime", "supervisor", OURS)
    whole = package_problem("supervisor", home)
    (home / "cmdc_runtime-1.0.dist-info" / "RECORD").unlink()

    assert whole == ""
    assert package_problem("supervisor", home) == ""
    assert not has_supervisor_beside(home)


@pytest.mark.parametrize("recorded", [True, False])
def test_both_in_one_folder_in_each_order(home, recorded):
    """Who was installed last is known by whose file lies there."""
    put(home, "cmdc-runtime", "supervisor", OURS)
    put(home, "supervisor", "supervisor", "", recorded=recorded)
    theirs_last = package_problem("supervisor", home)
    put(home, "cmdc-runtime", "supervisor", OURS)
    ours_last = package_problem("supervisor", home)

    assert has_supervisor_beside(home)
    assert "supervisor 1.0 over cmdc-runtime was installed" in theirs_last
    assert "cmdc-runtime over supervisor 1.0 was installed" in ours_last
    assert installation.MEND in ours_last


def test_files_that_are_gone_are_counted_and_the_first_is_named(home, monkeypatch):
    """A removal of another distribution takes files of ours."""
    monkeypatch.setattr("sys.path", [str(home)])
    put(home, "cmdc-runtime", "supervisor", OURS)
    (home / "supervisor" / "__init__.py").unlink()
    problem = package_problem("supervisor", home)

    assert problem.startswith("1 file(s) of cmdc-runtime are missing or changed, the first is ")
    assert f"{home}/supervisor/__init__.py" in problem


@pytest.mark.parametrize("is_owned", [True, False])
def test_another_place_is_named_with_its_owner(home, tmp_path_factory, is_owned):
    """What comes first on the path hides ours, whether pip knows it or not."""
    put(home, "supervisor", "supervisor", "")
    if not is_owned:
        (home / "supervisor-1.0.dist-info" / "RECORD").unlink()
    behind = tmp_path_factory.mktemp("behind").resolve()
    put(behind, "cmdc-runtime", "supervisor", OURS)
    problem = package_problem("supervisor", behind)

    owner = "supervisor 1.0" if is_owned else "no distribution that pip knows"
    assert f"at {home}/supervisor and of {owner}, comes before" in problem
    assert f"that of cmdc-runtime at {behind}/supervisor" in problem


def test_a_module_of_that_name_hides_it_as_well(home, tmp_path_factory):
    """A single file is a package's rival, too."""
    (home / "supervisor.py").write_text("")
    problem = package_problem("supervisor", tmp_path_factory.mktemp("behind"))

    assert f"at {home}/supervisor.py and of no distribution" in problem


def test_no_package_at_all(home, monkeypatch):
    """What is not found is said to be missing where it belongs."""
    monkeypatch.setattr("sys.path", [str(home)])

    assert f"which belongs at {home}/supervisor" in package_problem("supervisor", home)


def test_this_work_tree_has_no_problem(capsys):
    """The check of the process that runs the tests finds nothing."""
    assert (installation.main(), capsys.readouterr().out) == (0, "")
