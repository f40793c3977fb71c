"""A script, its neighbours and their neighbours reach a process that has none of them."""

import subprocess
import sys
import textwrap

import pytest

RUN_TIMEOUT_S = 60.0

OTHER = """
    import beside  # the two import each other

    def double(number):
        return 2 * number

    def through():
        return beside.LIMIT
"""
BESIDE = """
    from typing import Annotated
    import msgspec
    import other
    from cmdc_runtime.extensions import Context, Tool, tool

    LIMIT = 3

    class Place(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
        "A place."
        the_name: Annotated[str, msgspec.Meta(min_length=2)]
        tags: list[str] = []

        def twice(self):
            return Place(the_name=self.the_name * 2, tags=self.tags)

    @tool(effects="read")
    def where(place: Place, limit: Annotated[int, msgspec.Meta(le=9)] = LIMIT) -> str:
        "Say where."
        return f"{place.twice().the_name} {other.double(limit)} {other.through()}"

    class Counter(Tool):
        name = "counter"

        def __init__(self, start=7):
            self.start = start

        async def execute(self, args, context):
            return f"{self.start} {context.session_id}"
"""
SCRIPT = """
    import sys
    import msgspec, pydantic
    from beside import Counter, where
    from cmdc_runtime.extensions import Context, tool
    from cmdc_runtime.packing import pack

    def closed_over(suffix):
        @tool
        def closure(text: str, *, context: Context) -> str:
            "Use a variable of the function around it."
            return text + suffix
        return closure

    @tool
    def count_down(number: int) -> str:
        "Call itself."
        return "." if number == 0 else count_down(number - 1) + "."

    class Order(pydantic.BaseModel):
        count: int = pydantic.Field(ge=1)

        def twice(self):
            return 2 * self.count

    @tool
    def buy(order: Order, limit: int = pydantic.Field(3, le=9)) -> dict[str, object]:
        "Take a model, and a parameter with a field for its default."
        return {"count": min(order.twice(), limit), "order": order}

    things = [where, Counter, closed_over("!"), count_down, buy]
    packed = [pack(thing, f"tools[{at}]") for at, thing in enumerate(things)]
    sys.stdout.buffer.write(msgspec.msgpack.encode(packed))
"""
WORKER = """
    import asyncio, inspect, sys
    import msgspec
    from cmdc_runtime.extensions import Context
    from cmdc_runtime.packing import Packed
    from workers.loader import load_tools

    packed = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[Packed])
    context = Context(session_id="s-1", call_id="call_1")
    calls = [{"place": {"theName": "ab"}}, {}, {"text": "hi"}, {"number": 2}]
    calls.append({"order": {"count": 2}})
    for tool, arguments in zip(load_tools(packed), calls, strict=True):
        result = tool.execute(tool.check(arguments), context)
        print(tool.name, asyncio.run(result) if inspect.isawaitable(result) else result)
    print(sorted({"beside", "other"} & sys.modules.keys()))
"""
KINDS = """
    from __future__ import annotations
    import dataclasses, enum, sys, typing
    import msgspec, pydantic
    from cmdc_runtime.packing import byvalue

    class Mood(enum.StrEnum):
        GLAD = enum.auto()
        SAD = enum.auto()

    class Code(enum.IntEnum):
        LOW = 1

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Tree:
        weight: typing.Annotated[int, msgspec.Meta(ge=0)]
        mood: Mood = Mood.GLAD
        kids: list[Tree] = dataclasses.field(default_factory=list, repr=False)

    class Row(typing.TypedDict, total=False):
        a: typing.Required[int]

    class LongRow(Row):
        b: typing.Required[Code]

    class Pair(typing.NamedTuple):
        tree: Tree
        number: int = 3

    T = typing.TypeVar("T")

    class Box(msgspec.Struct, typing.Generic[T]):
        thing: T
        kids: list[Box[T]] = []

        def __post_init__(self):
            if len(self.kids) > 1:
                raise ValueError("full")

    @dataclasses.dataclass
    class Crate(typing.Generic[T]):
        thing: T

    class Order(pydantic.BaseModel):
        mood: Mood
        kids: list[Order] = []

        @pydantic.field_validator("kids")
        @classmethod
        def few(cls, kids):
            if len(kids) > 1:
                raise ValueError("full")
            return kids

    Name = typing.NewType("Name", str)

    def made_inside():
        return typing.NewType("Names", typing.Dict[Name, Tree])

    kinds = [Mood, Code, Tree, LongRow, Pair, Box[int], Crate[Mood], Order, Name, made_inside()]
    for kind in kinds:  # as @tool does: msgspec keeps what it computes in the class
        msgspec.json.schema_components([kind], schema_hook=lambda _: {"type": "object"})
    sys.stdout.buffer.write(byvalue.dumps(kinds))
"""
KINDS_ELSEWHERE = """
    import pickle, sys
    import msgspec
    from cmdc_runtime.foreign_types import dec_hook

    kinds = dict(zip(
        ["mood", "code", "tree", "row", "pair", "box", "crate", "order", "name", "names"],
        pickle.load(sys.stdin.buffer),
    ))
    for kind, value in [
        ("mood", "glad"), ("mood", "mad"), ("code", 1), ("code", 2),
        ("tree", {"weight": 1, "kids": [{"weight": 2}]}), ("tree", {}), ("tree", {"weight": -1}),
        ("row", {"a": 1, "b": 1}), ("row", {"b": 1}),
        ("pair", [{"weight": 1}]), ("pair", []),
        ("box", {"thing": 1, "kids": [{"thing": 2}]}), ("box", {"thing": "x"}),
        ("box", {"thing": 1, "kids": [{"thing": 2}, {"thing": 2}]}),
        ("crate", {"thing": "sad"}), ("crate", {"thing": 1}),
        ("order", {"mood": "sad", "kids": [{"mood": "glad"}]}), ("order", {"mood": "mad"}),
        ("order", {"mood": "sad", "kids": [{"mood": "sad"}, {"mood": "sad"}]}),
        ("name", "a"), ("name", 1), ("names", {"a": {"weight": 1}}), ("names", {"a": {}}),
    ]:
        try:
            found = msgspec.convert(value, kinds[kind], dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            found = f"refused: {error}"
        print(kind, found)
"""
KINDS_ARRIVED = [
    "mood glad",
    "mood refused: Invalid enum value 'mad'",
    "code 1",
    "code refused: Invalid enum value 2",
    "tree Tree(weight=1, mood=<Mood.GLAD: 'glad'>)",
    "tree refused: Object missing required field `weight`",
    "tree refused: Expected `int` >= 0 - at `$.weight`",
    "row {'a': 1, 'b': <Code.LOW: 1>}",
    "row refused: Object missing required field `a`",
    "pair Pair(tree=Tree(weight=1, mood=<Mood.GLAD: 'glad'>), number=3)",
    "pair refused: Expected `array` of length 1 to 2, got 0",
    "box Box(thing=1, kids=[Box(thing=2, kids=[])])",
    "box refused: Expected `int`, got `str` - at `$.thing`",
    "box refused: full",
    "crate Crate(thing=<Mood.SAD: 'sad'>)",
    "crate refused: Expected `str`, got `int` - at `$.thing`",
    "order mood=<Mood.SAD: 'sad'> kids=[Order(mood=<Mood.GLAD: 'glad'>, kids=[])]",
    "order refused: mood: Input should be 'glad' or 'sad'",
    "order refused: kids: Value error, full",
    "name a",
    "name refused: Expected `str`, got `int`",
    "names {'a': Tree(weight=1, mood=<Mood.GLAD: 'glad'>)}",
    "names refused: Object missing required field `weight` - at `$[...]`",
]
DILL = """
    import sys
    import dill
    from beside import Counter
    sys.stdout.buffer.write(dill.dumps(Counter(), byref=False, recurse=True))
"""
UNDILL = "import sys, dill; dill.loads(sys.stdin.buffer.read())"


@pytest.fixture
def script_folder(tmp_path):
    """Return a folder with a script's two neighbours."""
    for name, text in (("other", OTHER), ("beside", BESIDE)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    return tmp_path


def run_script(folder, text):
    """Return what a script of the folder writes."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, script], check=True, capture_output=True, timeout=RUN_TIMEOUT_S
    ).stdout


def run_elsewhere(text, given):
    """Run code in a process that knows nothing of the folder."""
    return subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(text)],
        check=False,
        input=given,
        capture_output=True,
        cwd="/",
        timeout=RUN_TIMEOUT_S,
    )


@pytest.mark.process
@pytest.mark.slow
def test_code_beside_a_script_arrives(script_folder):
    """Struct classes, closures, modules that import each other and recursion work over there."""
    packed = run_script(script_folder, SCRIPT)
    worker = run_elsewhere(WORKER, packed)

    assert worker.stderr.decode() == ""
    assert worker.stdout.decode().splitlines() == [
        "where abab 6 3",
        "counter 7 s-1",
        "closure hi!",
        "count_down ...",
        "buy {'count': 3, 'order': Order(count=2)}",
        "[]",
    ]


@pytest.mark.process
@pytest.mark.slow
def test_classes_of_every_kind_arrive_whole(script_folder):
    """What msgspec has computed stays behind; defaults, bounds, bases and own names travel."""
    worker = run_elsewhere(KINDS_ELSEWHERE, run_script(script_folder, KINDS))

    assert worker.stderr.decode() == ""
    assert worker.stdout.decode().splitlines() == KINDS_ARRIVED


@pytest.mark.process
@pytest.mark.slow
def test_dill_would_not_do(script_folder):
    """The measurement behind docs/adr/0003: dill sends a neighbour's class by its name alone."""
    data = run_script(script_folder, DILL)
    worker = run_elsewhere(UNDILL, data)

    assert b"No module named 'beside'" in worker.stderr
