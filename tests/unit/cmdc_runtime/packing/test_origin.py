"""What is found by a name in another process, and what came along with it."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cmdc_runtime.packing import origin
from cmdc_runtime.packing.origin import companions, is_installed, is_local_import

STDLIB = Path(json.__file__).parent


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Return what loads modules of two folders, and lets them go."""
    before = set(sys.modules)
    for name in ("ours/script_a", "ours/script_b", "ours/pack_a/__init__", "ours/pack_a/inner"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/script_c.py").write_text("")
    for folder in ("ours", "theirs"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    for name in ("script_a", "script_b", "pack_a.inner", "script_c"):
        importlib.import_module(name)
    yield tmp_path
    for name in set(sys.modules).difference(before):
        del sys.modules[name]


def module(name, **attributes):
    """Return a module as somebody's code makes it."""
    made = ModuleType(name)
    vars(made).update(attributes)
    return made


OURS = ["pack_a", "pack_a.inner", "script_a", "script_b"]


@pytest.mark.parametrize("name", ["script_a", "script_a.part", "pack_a", "pack_a.inner"])
def test_local_code_comes_with_what_lies_below_its_folder(loaded, name):
    """And with nothing of another one."""
    assert sorted(companions(name)) == OURS


def test_what_is_installed_below_that_folder_is_not_local_code(loaded, monkeypatch):
    """An environment lies below its project, often."""
    below = f"{loaded}/ours/pack_a/"
    monkeypatch.setattr(origin, "_installed_folders", lambda: (below,))
    origin._is_installed_path.cache_clear()

    assert sorted(companions("script_a")) == ["script_a", "script_b"]
    origin._is_installed_path.cache_clear()


def test_an_installed_package_comes_with_its_modules():
    """Not with another one whose name begins alike."""
    found = companions("json.decoder")

    assert {"json", "json.decoder", "json.encoder"} <= set(found)
    assert all(name.partition(".")[0] == "json" for name in found)


@pytest.mark.parametrize("attributes", [{}, {"__file__": None}, {"__file__": 7}])
def test_a_module_without_a_file_comes_alone(loaded, monkeypatch, attributes):
    """Anything may stand among the modules."""
    monkeypatch.setitem(sys.modules, "no_file", module("no_file", **attributes))

    assert companions("no_file") == []
    assert sorted(companions("script_a")) == OURS


@pytest.mark.parametrize(
    ("places", "is_it"), [([STDLIB], True), ([STDLIB, "local"], False), (["local"], False)]
)
def test_a_package_in_several_places_is_installed_in_all_of_them(
    tmp_path, monkeypatch, places, is_it
):
    """A part of it that lies beside a script is not found elsewhere."""
    path = [str(tmp_path / place) for place in places]
    monkeypatch.setitem(sys.modules, "in_parts", module("in_parts", __path__=path))

    assert is_installed("in_parts") is is_it


def test_a_file_is_where_its_link_leads(tmp_path, monkeypatch):
    """Some distributions link their library to another place."""
    (tmp_path / "link").symlink_to(STDLIB)
    linked = module("linked", __file__=f"{tmp_path}/link/decoder.py")
    monkeypatch.setitem(sys.modules, "linked", linked)

    assert is_installed("linked")


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("script_a", True),
        ("not_loaded", True),
        ("split", True),
        ("whole", False),
        ("json", False),
        ("__main__", False),
        ("", False),
        ("no_such", False),
    ],
)
def test_an_import_is_local_where_any_part_of_it_is(loaded, monkeypatch, name, is_it):
    """Whether it is loaded or not; what nobody finds is the function's own business."""
    theirs = f"{loaded}/theirs/"
    (loaded / "ours/not_loaded.py").write_text("")
    for folder in ("ours/split", "theirs/split", "theirs/whole"):
        (loaded / folder).mkdir()
    installed = origin._installed_folders()
    monkeypatch.setattr(origin, "_installed_folders", lambda: (*installed, theirs))
    importlib.invalidate_caches()

    assert is_local_import(name) is is_it


def test_the_folder_of_our_dependencies_counts_as_installed(monkeypatch, tmp_path):
    """They may lie on PYTHONPATH alone; each process of ours imports them from there.

    What lies beside that folder does not, as the application that holds it.
    """
    (tmp_path / "deps/msgspec").mkdir(parents=True)
    for path in ("deps/beside_it.py", "above_it.py"):
        (tmp_path / path).write_text("")
    monkeypatch.setattr(origin.msgspec, "__file__", f"{tmp_path}/deps/msgspec/__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "deps")
    _forget_folders()
    try:
        for name in ("beside_it", "above_it"):
            importlib.import_module(name)
        found = is_installed("beside_it"), is_installed("above_it")
    finally:
        monkeypatch.undo()
        _forget_folders()
        for name in ("beside_it", "above_it"):
            sys.modules.pop(name, None)

    assert found == (True, False)


def _forget_folders():
    origin._installed_folders.cache_clear()
    origin._is_installed_path.cache_clear()
