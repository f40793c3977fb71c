"""PyPI's supervisor beside ours, in each order: what is reported of it, and that the mend mends it.

Both distributions have a package ``supervisor``. Theirs is made here; it has what matters of it: a
file ``supervisor/__init__.py`` with another text, a module, and no ``__main__``.
"""

import json
import zipfile

import pytest

from tests.e2e.first_hour.installed import write_wheel

THEIRS = {
    "supervisor/__init__.py": "# -*- coding: utf-8 -*-\n",
    "supervisor/supervisord.py": "def main():\n    print('theirs')\n",
}
START = """
import cmdc_runtime as cmdc

try:
    with cmdc.create_agent(model="openai:m", provider_opts={"api_key": "none"}):
        print("started")
except cmdc.DaemonUnavailable as error:
    print(error)
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The wheel of the other supervisor."""
    return write_wheel(tmp_path_factory.mktemp("theirs"), "supervisor", "4.3.0", THEIRS)


@pytest.fixture(scope="module")
def place(make_environment):
    """An environment with our wheel; each test leaves it as it was."""
    return make_environment()


def doctor(place, folder, **environ):
    """Return what the doctor finds of our packages: whether all is well, and the whole text."""
    done = place.run(place.cmdc, "doctor", "--json", cwd=folder, **environ)
    rows = [one for one in json.loads(done.stdout) if one["name"] == "packages"]
    return all(one["status"] == "ok" for one in rows), "\n".join(
        f"{one['found']} | {one['advice']}" for one in rows
    )


def start(place, folder, **environ):
    """Return what a program prints that starts a session with an embedded daemon."""
    (folder / "program.py").write_text(START)
    done = place.run("program.py", cwd=folder, TMPDIR=str(folder), **environ)
    return done.stdout + done.stderr


def serve(place, folder):
    """Return the log of a daemon that was started and ended."""
    log, where = folder / "daemon.log", {"CMDC_RUNTIME_DIR": str(folder / "run")}
    words = ["serve", "--detach", "--log-file", log, "--state-dir", folder, "--spares", "0"]
    for command in (words, ["shutdown"]):
        done = place.run(place.cmdc, *command, cwd=folder, **where)
        assert done.returncode == 0, done.stderr
    return log.read_text()


def test_alone_all_is_well(place, tmp_path):
    """An environment of its own has nothing to report."""
    is_well, found = doctor(place, tmp_path)

    assert is_well, found
    assert found == f"cmdc_runtime, supervisor, workers at {place.packages} | "


def test_theirs_and_ours_in_one_folder(place, wheel, theirs, tmp_path):
    """Each order is reported as it is while all still works, and the removal as what it breaks."""
    place.install(theirs)
    theirs_last = doctor(place, tmp_path)
    place.install(wheel)
    ours_last = doctor(place, tmp_path)
    log = serve(place, tmp_path)
    place.pip("uninstall", "--yes", "--quiet", "supervisor")
    removed, printed = doctor(place, tmp_path), start(place, tmp_path)
    place.install(wheel)
    mended = doctor(place, tmp_path)

    assert (theirs_last[0], ours_last[0], removed[0], mended[0]) == (False, False, False, True)
    assert "supervisor 4.3.0 over cmdc-runtime was installed" in theirs_last[1]
    assert "cmdc-runtime over supervisor 4.3.0 was installed" in ours_last[1]
    assert "package.shared" in log
    assert "cmdc-runtime over supervisor 4.3.0 was installed" in log
    for text in (removed[1], printed):
        assert f"the first is {place.packages}/supervisor/__init__.py" in text
        assert "pip install --force-reinstall --no-deps cmdc-runtime" in text


def test_theirs_found_before_ours(place, theirs, tmp_path):
    """What hides our package is named with its place and its distribution."""
    other = tmp_path / "other"
    with zipfile.ZipFile(theirs) as files:
        files.extractall(other)
    is_well, found = doctor(place, tmp_path, PYTHONPATH=str(other))
    printed = start(place, tmp_path, PYTHONPATH=str(other))

    assert not is_well
    for text in (found, printed):
        assert f"at {other}/supervisor and of supervisor 4.3.0, comes before" in text
        assert f"that of cmdc-runtime at {place.packages}/supervisor" in text
