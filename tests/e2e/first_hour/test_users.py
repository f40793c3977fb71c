"""The first hour of five kinds of users, with the installed wheel: their programs, and a notebook.

Each program of ``users`` runs in an empty folder, by the Python of an environment that has the
wheel; the repository is on no path. The model is scripted behind the variables that everybody
knows. ``make first-hour`` runs the same in environments that pip has filled from an index, of the
oldest and of the newest Python of the machine (``CMDC_FIRST_HOUR``).
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.testing import Error, ScriptedModel, ToolCalls, ToolUse
from tests.e2e.first_hour.installed import IS_WHOLE, PROGRAM_S, clean_environ

USERS = Path(__file__).parent / "users"
NOTEBOOK = Path(__file__).parents[3] / "docs" / "howto" / "notebooks.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KERNEL = """
import sys

import nbclient, nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec

python, path, folder = sys.argv[1:]
argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
manager = AsyncKernelManager(ip="127.0.0.1")
manager._kernel_spec = KernelSpec(argv=argv, display_name="installed", language="python")
notebook = nbformat.read(path, as_version=4)
place = {"metadata": {"path": folder}}
nbclient.NotebookClient(notebook, km=manager, timeout=240, resources=place).execute()
nbformat.write(notebook, path)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(PROGRAM_S + 60, func_only=True),
]


def called(name, /, **arguments):
    """Return the answer that asks for one tool."""
    return ToolCalls(ToolUse(name, arguments))


def newest(request):
    """Return the newest message of a request."""
    return request["messages"][-1]["content"]


class Answers:
    """A model that goes by what it is asked, since some programs ask two things at a time."""

    def __init__(self, table):
        self.table = table

    def __call__(self, request):
        for words, answer in self.table.items():
            if words in newest(request):
                return answer(request) if callable(answer) else answer
        return Error(400, f"no answer to {newest(request)!r}")


@pytest.fixture
def play(place, tmp_path):
    """Run a user's program with a model that goes by a table; return what it prints."""

    def run(name, table, *, status=0):
        with ScriptedModel([], default=Answers(table)) as model:
            done = place.run("-I", USERS / f"{name}.py", cwd=tmp_path, **variables(model, tmp_path))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run


def variables(model, folder):
    """Return what a program's environment says of its model and of its places."""
    return {
        "CMDC_MODEL": "openai:scripted",
        "OPENAI_API_KEY": "none",
        "OPENAI_API_BASE": model.url,
        "CMDC_RUNTIME_DIR": str(folder / "run"),
        "CMDC_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder),
    }


def test_the_package_is_the_installed_one(place, tmp_path):
    """No program of this folder runs the work tree by mistake."""
    printed = place.run(
        "-Ic", "import cmdc_runtime, supervisor, workers as w; print(w.__path__)", cwd=tmp_path
    )

    assert printed.stdout == f"['{place.packages}/workers']\n", printed.stderr


def test_a_newcomer(play):
    """Mistakes are said at once and with their way out; a stream, a tool and a number work."""
    printed, noted = play(
        "newcomer",
        {
            "wear": called("weather", city="Bergen"),
            '"rain"': "Take a coat.",
            "warm": '{"result": 9}',
        },
    )
    misspelt, missing, vague, *answers = printed.splitlines()

    assert "model" in misspelt
    assert "modle" in misspelt
    assert "model" in missing
    assert "gpt-4o" in vague
    assert "provider" in vague
    roles = ["system", "user", "assistant", "tool_result", "assistant", "user", "assistant"]
    assert answers == ["Take a coat.", "10", str(roles)]
    assert "asked for Bergen" in noted


def test_an_ide_user(play):
    """Completion knows all names, methods and options, and each name says what it is."""
    printed, _ = play("ide_user", {})
    names, methods, parameters, documented, summary = printed.splitlines()

    assert (names, methods, documented) == ("True", "True", "True")
    assert "'options'" in parameters
    assert summary


@pytest.mark.skipif(not IS_WHOLE, reason="make first-hour; tests/typing checks the work tree")
def test_an_editor_marks_what_is_wrong(place, tmp_path):
    """A type checker reads the annotations of the installed package, and marks the wrong lines."""
    program = USERS / "typed.py"
    wrong = [
        number
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    ]
    words = ["--python-executable", str(place.python), "--output", "json", "--strict"]
    cache = ["--cache-dir", str(tmp_path / "mypy")]
    command = [sys.executable, "-m", "mypy", *words, *cache, "--config-file", "", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    assert sorted(one["line"] for one in found if one["severity"] == "error") == wrong, done.stdout


def test_an_operator(play):
    """A daemon of the wheel is served, looked at, backed up and ended by the command line."""
    table = {"Read it.": "It is read.", "And now?": "Still read."}
    printed, _ = play("operator", table)

    assert printed.splitlines() == [
        "version cmdc",
        "no daemon: no session is listed",
        "['ok', 'ok', 'ok', 'ok']",
        "It is read.",
        "prompted after the kill, another process: True True",
        "in the tree, the kill in the log: True True",
        "backed up: True",
        "ended: ['reader']",
        "its messages are there: True",
        "shut down, gone: True True",
    ]


def test_a_plugin_author(play):
    """A plugin of a module, its tests with the fixtures that are installed, and a crash."""
    table = {"Hello.": "Hello to you."}

    assert play("plugin_author", table)[0].splitlines() == ["Hello to you.", "True"]


def test_who_comes_from_another_library(play):
    """Coroutines, a tool of the own loop, typed answers, a history, an error of the model."""
    fruit = '{{"name": "{0}", "count": {1}}}'
    table = {
        "How many pears": called("stock", fruit="pears"),
        "How many plums": called("stock", fruit="plums"),
        '{"count":3}': fruit.format("pears", 3),
        '{"count":0}': fruit.format("plums", 0),
        "My name is Ada.": "Hello, Ada.",
        "What is my name?": "You are Ada, as you said before.",
        "Fail.": Error(400, "no such thing"),
    }

    assert play("from_elsewhere", table)[0].splitlines() == [
        "[\"Fruit(name='pears', count=3)\", \"Fruit(name='plums', count=0)\"]",
        "You are Ada, as you said before. True",
        "AgentFailed True",
    ]


def test_a_notebook_on_a_real_kernel(place, tmp_path):
    """The cells of the how-to define and replace tools, stream, and await in its loop."""
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(one) for one in PIECE.findall(NOTEBOOK.read_text())]
    notebook = nbformat.v4.new_notebook(cells=cells)
    path = tmp_path / "notebook.ipynb"
    nbformat.write(notebook, path)
    table = {
        "What is the answer?": called("answer"),
        "42": "It is 42.",
        "And now?": called("answer"),
        "43": "It is 43.",
        "Remember that": called("remember", fact="it rains"),
        "noted": "I do.",
        "Hello.": "Hello to you.",
    }
    with ScriptedModel([], default=Answers(table)) as model:
        environ = clean_environ() | variables(model, tmp_path)
        command = [sys.executable, "-c", KERNEL, str(place.python), str(path), str(tmp_path)]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    played = nbformat.read(path, as_version=4)
    shown = [
        out.get("text") or out["data"]["text/plain"] for one in played.cells for out in one.outputs
    ]

    assert shown == ["It is 42.", "'It is 43.'", "['it rains']", "Hello to you.\n"]
