"""``python -m benchmarks.peers.quickstart``: the README's quickstart beside the same by others.

Each is a script of its own: it has a tool that counts lines, asks about a file, and prints the
answer as it comes. Scripts take turns; a figure is the median of them, as ``time`` reports it. Who
is not installed is left out and named.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.metrics import Metric, measured
from benchmarks.peers.catalogue import CMDC
from benchmarks.peers.figures import number
from benchmarks.peers.play import PYTHON
from benchmarks.processes import ROOT, environment
from benchmarks.report import append, table
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse
from cmdc_runtime.testing.steps import Answer, Request

TURNS: Final = 5
END_S: Final = 120.0
ANSWER: Final = "It has three lines."
LINES: Final = "one\ntwo\nthree\n"
_OPENAI: Final = """
import json
from pathlib import Path

import openai


def count_lines(path):
    return f"{path} has {len(Path(path).read_text().splitlines())} lines"


parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
described = {"name": "count_lines", "description": "Count lines.", "parameters": parameters}
tools = [{"type": "function", "function": described}]
messages = [{"role": "user", "content": "How many lines has README.md?"}]
client = openai.OpenAI()
while True:
    calls = {}
    chunks = client.chat.completions.create(
        model="gpt-4o-mini", messages=messages, tools=tools, stream=True
    )
    for chunk in chunks:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        if delta.content:
            print(delta.content, end="", flush=True)
        for piece in delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += piece.id or ""
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    if not calls:
        break
    made = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in calls.values()
    ]
    messages.append({"role": "assistant", "content": None, "tool_calls": made})
    for call in calls.values():
        text = count_lines(**json.loads(call["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
"""
_PYDANTIC_AI: Final = '''
import asyncio
from pathlib import Path

from pydantic_ai import Agent

agent = Agent("openai-chat:gpt-4o-mini")


@agent.tool_plain
def count_lines(path: str) -> str:
    """Count the lines of a file."""
    return f"{path} has {len(Path(path).read_text().splitlines())} lines"


async def main():
    async with agent.run_stream("How many lines has README.md?") as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            print(text, end="", flush=True)


asyncio.run(main())
'''
_OPENAI_AGENTS: Final = '''
import asyncio
from pathlib import Path

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from openai.types.responses import ResponseTextDeltaEvent

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool
def count_lines(path: str) -> str:
    """Count the lines of a file."""
    return f"{path} has {len(Path(path).read_text().splitlines())} lines"


async def main():
    agent = Agent(name="counter", model="gpt-4o-mini", tools=[count_lines])
    result = Runner.run_streamed(agent, "How many lines has README.md?")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="", flush=True)


asyncio.run(main())
'''
PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    CMDC: ("", (ROOT / "examples" / "01_quickstart.py").read_text(encoding="utf-8")),
    "openai SDK": ("openai", _OPENAI),
    "Pydantic AI": ("pydantic_ai", _PYDANTIC_AI),
    "OpenAI Agents": ("agents", _OPENAI_AGENTS),
}
"""Who takes part: what has to be importable in the peers' environment, and the script."""
MEASURES: Final[Mapping[str, str]] = {
    "first": "from its start to its first piece (s)",
    "real": "to its end (s)",
    "cpu": "CPU time, user and system (s)",
}
Samples = defaultdict[str, defaultdict[str, list[float]]]
Run = Mapping[str, Any]  # Any: a record is JSON


def answer(request: Request) -> Answer:
    """Return what the model says: a call of the tool, then what it found."""
    if request["messages"][-1]["role"] == "tool":
        return ANSWER
    return ToolCalls(ToolUse("count_lines", {"path": "README.md"}))


def play(python: str, programs: Sequence[str], turns: int) -> Samples:
    """Return the samples of each measure and program; the first turn, which warms up, has none."""
    found: Samples = defaultdict(lambda: defaultdict(list))
    with (
        tempfile.TemporaryDirectory(prefix="quick-") as folder,
        ScriptedModel([], default=answer) as model,
    ):
        Path(folder, "README.md").write_text(LINES, encoding="utf-8")
        given = {
            "CMDC_MODEL": "openai:gpt-4o-mini",
            "CMDC_RUNTIME_DIR": str(Path(folder, "no-daemon-here")),
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": model.url,
            "OPENAI_BASE_URL": model.url,
        }
        for turn in range(turns + 1):
            at = turn % len(programs)
            for name in (*programs[at:], *programs[:at]):
                took = _played(python, name, given, folder)
                for measure, value in took.items() if turn else ():
                    found[measure][name].append(value)
    return found


def _played(python: str, name: str, given: dict[str, str], folder: str) -> Mapping[str, float]:
    """Return what each measure is of one run of a program."""
    needed, script = PROGRAMS[name]
    program = Path(folder, "program.py")
    program.write_text(script, encoding="utf-8")
    interpreter = python if needed else sys.executable
    took = _timed([interpreter, str(program)], environment() | given, folder)
    return dict(zip(MEASURES, took, strict=True))


def _timed(command: Sequence[str], variables: Mapping[str, str], folder: str) -> Iterator[float]:
    """Return the seconds to the first byte and to the end, and the CPU time with its children's.

    Raises:
        RuntimeError: it failed, or did not print the answer.
    """
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        first_s = time.perf_counter() - start
        printed = (first + process.stdout.read()).decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    real_s = time.perf_counter() - start
    if process.returncode or ANSWER not in printed:
        raise RuntimeError(f"a script ended with {process.returncode} and printed {printed!r}")
    return iter((first_s, real_s, used.ru_utime + used.ru_stime))


def metrics(found: Samples) -> list[Metric]:
    """Return a metric for each measure and program; ours is the baseline of the others."""
    return [
        measured(
            f"{measure}.{name}",
            "s",
            samples,
            baseline=() if name == CMDC else by_name.get(CMDC, ()),
        )
        for measure, by_name in found.items()
        for name, samples in by_name.items()
    ]


def rows(run: Run) -> list[tuple[str, ...]]:
    """Return the table of a record: a row for each program, what was left out too."""
    values = {one["metric"]: one["value"] for one in run["metrics"]}
    return [
        (name, *(number(values.get(f"{measure}.{name}")) or "left out" for measure in MEASURES))
        for name in PROGRAMS
    ]


def has(python: str, module: str) -> bool:
    """Say whether the peers' environment has a module; ours is always there."""
    if not module:
        return True
    if not Path(python).exists():
        return False
    done = subprocess.run([python, "-c", f"import {module}"], check=False, capture_output=True)
    return done.returncode == 0


def main() -> int:
    """Run what the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.quickstart")
    parser.add_argument("--python", default=str(PYTHON), help="of the peers' environment")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    playing = [name for name, (module, _) in PROGRAMS.items() if has(arguments.python, module)]
    left_out = [name for name in PROGRAMS if name not in playing]
    if left_out:
        sys.stderr.write(f"left out, since not installed: {', '.join(left_out)}\n")
    found = metrics(play(arguments.python, playing, arguments.turns))
    print(table(found))
    if not arguments.no_save:
        kept = {"turns": arguments.turns, "left_out": left_out, "nice": os.nice(0)}
        append("quickstart", {**kept, "metrics": found}, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
