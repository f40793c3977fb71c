"""Programs as people write them, with an embedded daemon and with another: code by value."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse
from cmdc_runtime.testing.fixtures import DaemonProcess

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "examples" / "01_quickstart.py"
PROGRAM_S = 60.0
ANSWER = "It is all in there."

TAIL = """
with cmdc.create_agent(model=os.environ["CMDC_MODEL"], tools=TOOLS) as session:
    for message in session.run("Use it.").messages:
        if message.role == "tool_result":
            print("RESULT", message.content)
"""
SCRIPT = (
    """
import os
from dataclasses import dataclass

import msgspec

import cmdc_runtime as cmdc

FACTOR = 3


class Item(msgspec.Struct):
    name: str
    count: int = 1


@dataclass
class Price:
    cents: int


def total(price, count):
    return price.cents * count * FACTOR


def made_inside(price):
    @cmdc.tool(effects="read")
    def use(item: Item) -> str:
        '''Tell the price of an item.'''
        return f"{item.name}: {total(price, item.count)} in {__name__}"

    return use


TOOLS = [made_inside(Price(5))]
"""
    + TAIL
)
BESIDE = """
import os

import cmdc_runtime as cmdc
import shop
from shop.shelf import use

TOOLS = [use]
"""
SHELF = """
import cmdc_runtime as cmdc

from shop import prices


@cmdc.tool(effects="read")
def use(item: dict) -> str:
    '''Tell the price of an item.'''
    return f"{item['name']}: {prices.of(item['count'])} of {prices.TABLE}"
"""
INSTALLED = """
import os

import cmdc_runtime as cmdc
import installed_shop

installed_shop.PRICE = 99  # code by value would take this along
TOOLS = [installed_shop.use]
"""
INSTALLED_SHOP = """
import cmdc_runtime as cmdc

PRICE = 7


@cmdc.tool(effects="read")
def use(item: dict) -> str:
    '''Tell the price of an item.'''
    return f"{item['name']}: {PRICE * item['count']}"
"""


def use_the_tool(request):
    """Call whatever tool there is, then answer; as long as the conversations come."""
    if request["messages"][-1]["role"] == "tool":
        return ANSWER
    (tool,) = request["tools"]
    name = tool["function"]["name"]
    arguments = {"path": "README.md"} if name == "count_lines" else {"item": ITEM}
    return ToolCalls(ToolUse(name, arguments))


ITEM = {"name": "pear", "count": 2}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder where packages are installed, with one in it."""
    base = tmp_path_factory.mktemp("user")
    folder = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(base)}))
    folder.mkdir(parents=True)
    (folder / "installed_shop.py").write_text(INSTALLED_SHOP)
    return base, folder


@pytest.fixture(scope="module")
def environment(installed):
    """What a program's environment says of its model: the variables that everybody knows."""
    base, folder = installed
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    with ScriptedModel([], default=use_the_tool) as model:
        yield kept | {
            "CMDC_MODEL": "openai/scripted",
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": model.url,
            "PYTHONUSERBASE": str(base),
            "PYTHONPATH": str(folder),
        }


@pytest.fixture(scope="module")
def alone(environment):
    """The environment of a program that finds no daemon."""
    return environment | {"CMDC_RUNTIME_DIR": str(ROOT / "no-daemon-here")}


@pytest.fixture(scope="module")
def served(environment):
    """The environment of a program with ``CMDC_ADDRESS``; the daemon's is the same."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        daemon = DaemonProcess()
    yield environment | {"CMDC_ADDRESS": str(daemon.address)}
    daemon.close()


@pytest.fixture(params=["alone", "served"])
def place(request):
    """Both environments."""
    return request.getfixturevalue(request.param)


def run(arguments, environment, *, cwd, source=None):
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=cwd,
        input=source,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_quickstart_runs(place, tmp_path):
    """The first example does what it says: its tool's result, the stream, the whole answer."""
    (tmp_path / "README.md").write_text("one\ntwo\nthree\n")
    printed = run([str(QUICKSTART)], place, cwd=tmp_path)

    assert printed == f"[README.md has 3 lines]\n{ANSWER}\n\nThe whole answer: {ANSWER}\n"


def test_tools_of_a_script_travel_by_value(served, tmp_path):
    """Classes, constants, functions and closures of the script are there in the agent."""
    (tmp_path / "program.py").write_text(SCRIPT)
    printed = run(["program.py"], served, cwd=tmp_path)

    assert printed == "RESULT pear: 30 in __main__\n"


def test_tools_of_a_cell_travel_by_value(place, tmp_path):
    """Code that stands in no file, as that of a notebook's cell, travels as well."""
    cell = f"exec(compile({SCRIPT!r}, '<cell 1>', 'exec'), globals())"
    printed = run(["-"], place, cwd=tmp_path, source=cell)

    assert printed == "RESULT pear: 30 in __main__\n"


def test_tools_of_a_module_beside_the_script_travel_by_value(served, tmp_path):
    """What merely lies beside the script is taken along with the local modules that it uses."""
    program = tmp_path / "elsewhere" / "program.py"
    (program.parent / "shop").mkdir(parents=True)
    (program.parent / "shop" / "__init__.py").write_text("")
    (program.parent / "shop" / "shelf.py").write_text(SHELF)
    prices = "TABLE = {'pear': 4}\n\ndef of(count):\n    return TABLE['pear'] * count\n"
    (program.parent / "shop" / "prices.py").write_text(prices)
    program.write_text(BESIDE + TAIL)
    printed = run([str(program)], served, cwd=tmp_path)

    assert printed == "RESULT pear: 8 of {'pear': 4}\n"


def test_tools_of_an_installed_module_travel_by_name(served, tmp_path):
    """What is installed is imported where it runs, and is not what the script has made of it."""
    (tmp_path / "program.py").write_text(INSTALLED + TAIL)
    printed = run(["program.py"], served, cwd=tmp_path)

    assert printed == "RESULT pear: 14\n"
