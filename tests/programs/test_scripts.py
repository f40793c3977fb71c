"""Programs as people write them, with an embedded daemon and with another: code by value."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess

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
        '''Return the price of an item.'''
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
    '''Return the price of an item.'''
    return f"{item['name']}: {prices.of(item['count'])} of {prices.TABLE}"
"""
KINDS = """
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic

import cmdc_runtime as cmdc


class Colour(Enum):
    '''What it looks like.'''

    RED = "red"
    BLUE = "blue"


@dataclass
class Price:
    '''What it costs.'''

    cents: Annotated[int, msgspec.Meta(ge=1, description="In cents.")]
    marks: list["Price"] = field(default_factory=list)

    def __post_init__(self):
        self.doubled = 2 * self.cents


class Row(TypedDict):
    name: str


class LongRow(Row):
    note: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: int = 9


class Item(msgspec.Struct):
    price: Price
    kids: "list[Item]" = []


class Order(pydantic.BaseModel):
    '''What is wanted.'''

    colour: Colour
    count: int = pydantic.Field(ge=1, description="So many.")


def made_inside():
    class Local(pydantic.BaseModel):
        order: Order

    @cmdc.tool(effects="read")
    def every(
        colour: Colour,
        price: Price,
        row: LongRow,
        pair: Pair,
        item: Item,
        order: Order,
        local: Local,
    ) -> list:
        '''Take one of each kind.'''
        assert isinstance(local.order, Order) and isinstance(item.kids[0], Item)
        assert (colour, order.colour) == (Colour.RED, Colour.BLUE)
        return [colour, price.doubled, price, row, pair.right, pair, item, order, local]

    return every


TOOLS = [made_inside()]
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
    '''Return the price of an item.'''
    return f"{item['name']}: {PRICE * item['count']}"
"""


def use_the_tool(request):
    """Call whatever tool there is, then answer; as long as the conversations come."""
    if request["messages"][-1]["role"] == "tool":
        return ANSWER
    (tool,) = request["tools"]
    name = tool["function"]["name"]
    arguments = {"count_lines": {"path": "README.md"}, "every": EVERY}
    return ToolCalls(ToolUse(name, arguments.get(name, {"item": ITEM})))


ITEM = {"name": "pear", "count": 2}
ORDER = {"colour": "blue", "count": 2}
EVERY = {
    "colour": "red",
    "price": {"cents": 5, "marks": [{"cents": 1}]},
    "row": {"name": "a"},
    "pair": [4],
    "item": {"price": {"cents": 3}, "kids": [{"price": {"cents": 2}}]},
    "order": ORDER,
    "local": {"order": ORDER},
}
EVERY_RESULT = (
    '["red",10,{"cents":5,"marks":[{"cents":1,"marks":[]}]},'
    '{"name":"a"},9,[4,9],{"price":{"cents":3,"marks":[]},"kids":'
    '[{"price":{"cents":2,"marks":[]},"kids":[]}]},'
    '{"colour":"blue","count":2},{"order":{"colour":"blue","count":2}}]'
)


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
def serving(environment):
    """A daemon with the environment of the programs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        daemon = DaemonProcess()
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def served(environment, serving):
    """The environment of a program with ``CMDC_ADDRESS``; the daemon's is the same."""
    return environment | {"CMDC_ADDRESS": str(serving.address)}


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


@pytest.mark.parametrize("where", ["script", "cell", "beside"])
def test_arguments_of_every_kind_arrive_as_themselves(served, tmp_path, where):
    """Enum, dataclass, TypedDict, NamedTuple, Struct and pydantic model travel, in and out."""
    programs = {
        "script": KINDS + TAIL,
        "cell": f"exec(compile({KINDS + TAIL!r}, '<cell 1>', 'exec'), globals())",
        "beside": "import os\nimport cmdc_runtime as cmdc\nfrom shop import TOOLS\n" + TAIL,
    }
    (tmp_path / "shop.py").write_text(KINDS)
    (tmp_path / "program.py").write_text(programs[where])
    printed = run(["program.py"], served, cwd=tmp_path)

    assert printed == f"RESULT {EVERY_RESULT}\n"


PRINTING = """
import os
import sys

import cmdc_runtime as cmdc


@cmdc.tool(effects="read", isolation=ISOLATION)
DEF use(item: dict) -> str:
    '''Print it.'''
    BODY
    return "printed"


TOOLS = [use]
"""


WHOLE_LINES = """print("looking for", item["name"])
    print("no \\x1b[31mcolour", file=sys.stderr, end="")
    print()"""
HALF_LINES = """print("10%\\r20%", end="\\r", flush=True)
    print(item["name"], end="")
    sys.stderr.write("no end")"""


def printing(isolation, body=WHOLE_LINES):
    """Return a program whose tool prints."""
    kind = "async def" if isolation == "task" else "def"
    program = PRINTING.replace("ISOLATION", repr(isolation)).replace("DEF", kind)
    return program.replace("BODY", body) + TAIL


ISOLATIONS = pytest.mark.parametrize("isolation", ["process", "thread", "task"])


def shown(done):
    """Return the lines that a program has shown, with one word for the name of its session."""
    return [re.sub(r"^\[s-[0-9a-f]+ ", "[SESSION ", line) for line in done.stderr.splitlines()]


@ISOLATIONS
def test_what_a_tool_prints_is_seen(alone, tmp_path, isolation):
    """On the standard error of the program, with its tool, and fit for a terminal."""
    (tmp_path / "program.py").write_text(printing(isolation))
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=alone,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "RESULT printed\n"), done.stderr
    assert shown(done)[0] == "[SESSION use] looking for pear"


@ISOLATIONS
def test_what_a_tool_prints_is_in_the_log(serving, served, tmp_path, isolation):
    """With session and call, line by line, where the daemon is nobody's own."""
    (tmp_path / "program.py").write_text(printing(isolation) + "\nprint(session.id)\n")
    own = f"session_id={run(['program.py'], served, cwd=tmp_path).split()[-1]}"
    lines = [one for one in serving.log_text().splitlines() if "looking for pear" in one]
    (line,) = [one for one in lines if own in one]

    assert "tool.wrote" in line
    assert "call_id=" in line
    assert "tool=use" in line


@ISOLATIONS
def test_what_a_tool_prints_without_an_end_of_line_is_seen(alone, tmp_path, isolation):
    """At the end of the call, a progress bar that is written over in one place, too."""
    (tmp_path / "program.py").write_text(printing(isolation, HALF_LINES))
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=alone,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "RESULT printed\n"), done.stderr
    assert sorted(shown(done)) == ["[SESSION use] 10%␍20%␍pear", "[SESSION use] no end"]


def test_what_a_killed_call_has_flushed_is_seen(alone, tmp_path):
    """Half a line, too: it may say what the call was about to do."""
    body = 'print("half", item["name"], end="", flush=True)\n    os.kill(os.getpid(), 9)'
    (tmp_path / "program.py").write_text(printing("process", body))
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=alone,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )

    assert "[SESSION use] half pear" in shown(done), done.stderr


def test_tools_of_an_installed_module_travel_by_name(served, tmp_path):
    """What is installed is imported where it runs, and is not what the script has made of it."""
    (tmp_path / "program.py").write_text(INSTALLED + TAIL)
    printed = run(["program.py"], served, cwd=tmp_path)

    assert printed == "RESULT pear: 14\n"
