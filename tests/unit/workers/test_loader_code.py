"""Code under a name: what is written down of it, and when it counts as another one."""

import importlib
import sys

import pytest

from cmdc_runtime import plugins
from cmdc_runtime.packed_code import digest_of
from cmdc_runtime.packing import Packed, pack_plugin
from workers import loader
from workers.loader import Code, CodeChangedError, changed, load_tools, with_code

TOOL = """
import cmdc_runtime as cmdc
from .words import WORD

@cmdc.tool
def probe() -> str:
    '''Say a word.'''
    return WORD
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package of an application that is not installed, with another one beside it."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in {"__init__": "", "words": "WORD = 1", "tools": TOOL, "other": ""}.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "beside.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [one for one in sys.modules if one.partition(".")[0] in {"shop", "beside"}]:
        del sys.modules[name]


def by_name(reference, **more):
    """Return packed code by reference."""
    return Packed(kind="ref", label=reference, ref=reference, **more)


def opened(packed):
    """Return the packed code of a tool after it was opened."""
    load_tools([packed])
    return with_code(packed)


def test_code_is_what_the_name_brought_along(shop):
    """All local modules that are loaded by then, and none that is not."""
    importlib.import_module("beside")
    found = opened(by_name("shop.tools:probe"))

    assert found.code.keys() == {"shop", "shop.words", "shop.tools", "beside"}
    assert digest_of(found) == digest_of(by_name("shop.tools:probe"))
    assert changed(found) == []


@pytest.mark.parametrize(
    "do",
    [lambda file: file.write_text("WORD = 2"), lambda file: file.unlink()],
    ids=["changed", "gone"],
)
def test_another_file_is_other_code_and_is_not_run(shop, do):
    """Changed or gone: the packed code is not opened, and the error names the module."""
    found = opened(by_name("shop.tools:probe"))
    do(shop / "words.py")

    assert changed(found) == ["shop.words"]
    with pytest.raises(CodeChangedError, match=r"\(shop\.words\)"):
        load_tools([found])


def test_a_package_that_is_gone_is_other_code(shop, tmp_path):
    """Its modules are looked for below it, and it is not there."""
    found = opened(by_name("shop.tools:probe"))
    shop.rename(tmp_path / "store")

    assert sorted(changed(found)) == ["shop", "shop.tools", "shop.words"]
    with pytest.raises(CodeChangedError, match=r"shop, shop\.tools, shop\.words"):
        load_tools([found])


def test_many_modules_are_named_by_the_first_few(shop):
    """An error is a line."""
    error = CodeChangedError(by_name("a:b"), ["a", "b", "c", "d"], "tool")

    assert "(a, b, c, …)" in str(error)


def test_built_ins_and_code_by_value_have_none():
    """The one is part of this program, the other cannot change."""
    packed = [by_name("read_file"), Packed(kind="value", label="f", data=b"\x80")]

    assert [with_code(one).code for one in packed] == [{}, {}]


def test_functions_among_the_options_of_a_built_in_count(shop):
    """However deep they stand."""
    tools = importlib.import_module("shop.tools")
    nested = {"$function": {"kind": "ref", "label": "f", "ref": "shop.tools:probe"}}
    found = with_code(
        by_name("odd", data=loader.msgspec.msgpack.encode({"rules": [{"f": nested}]}))
    )

    assert tools.__name__ in found.code
    assert with_code(pack_plugin(plugins.CostGuard(max_cost_usd=1.0), "")).code == {}


def test_of_an_installed_package_its_own_modules_count():
    """Not those that it uses."""
    found = with_code(by_name("json.decoder:JSONDecoder"))

    assert {name.partition(".")[0] for name in found.code} == {"json"}
    assert "json.decoder" in found.code


def test_what_has_no_file_that_can_be_read_is_not_looked_at(monkeypatch):
    """Modules of the interpreter, of a loader that fails, and what is no module at all."""

    class Loader:
        def get_data(self, path):
            raise RuntimeError(path)

    monkeypatch.setitem(sys.modules, "json.odd", 7)
    spec = importlib.machinery.ModuleSpec("json", Loader(), origin="here")
    monkeypatch.setattr(sys.modules["json"], "__spec__", spec)
    found = with_code(by_name("json:dumps"))

    assert not {"json", "json.odd"} & found.code.keys()
    assert with_code(by_name("sys:exit")).code == {}


def test_no_more_than_so_many_modules_are_looked_at(shop, monkeypatch):
    """The bound of what is written down."""
    monkeypatch.setattr(loader, "MODULES_MAX", 2)

    assert len(opened(by_name("shop.tools:probe")).code) == 2


def test_a_session_takes_code_once_and_wants_that(shop):
    """What it took is noted once; a later process wants that, whatever is there."""
    packed = by_name("shop.tools:probe")
    first = Code()
    load_tools([first.wanted(packed)])
    taken = first.take(first.wanted(packed))
    second = Code(dict(first.news))
    (shop / "words.py").write_text("WORD = 2")

    assert first.news == {digest_of(packed): taken.code}
    assert second.wanted(packed) == second.take(second.wanted(packed)) == taken
    assert second.news == {}


def test_with_the_latest_code_what_is_there_is_noted(shop):
    """So that a session which is pinned later on wants what ran last."""
    packed = by_name("shop.tools:probe")
    old = opened(packed)
    (shop / "words.py").write_text("WORD = 2")
    latest = Code({digest_of(packed): old.code}, is_latest=True)
    taken = latest.take(latest.wanted(old))
    again = Code({digest_of(packed): taken.code}, is_latest=True)

    assert latest.wanted(old).code == {}
    assert latest.news == {digest_of(packed): taken.code}
    assert taken.code["shop.words"] != old.code["shop.words"]
    assert again.take(again.wanted(packed)) == taken
    assert again.news == {}
