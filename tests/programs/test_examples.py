"""Each example as a program: what it prints, its exit status, and that nothing of it is left.

The model is scripted behind the variables that everybody knows. To add an example: a test here that
has its answers and what it prints. ``01_quickstart.py`` has its test in ``test_scripts.py``.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Error, ScriptedModel, Text, Thinking, ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAM_S = 60.0
LINES_MAX = 60
OWN_PROCESSES = 4
"""Of a daemon without sessions: the zygote, the resource tracker and two spares."""
USED = TokenUsage(prompt_tokens=20, completion_tokens=5)

pytestmark = [pytest.mark.slow, pytest.mark.process]


class Script:
    """The answers of one test, one after another, from the model that all of them share."""

    def __init__(self):
        self.answers = []
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        return self.answers.pop(0)


def call(name, /, **arguments):
    """Return the answer that asks for one tool."""
    return ToolCalls(ToolUse(name, arguments), usage=USED)


@pytest.fixture(scope="module")
def script():
    """What the model says."""
    return Script()


@pytest.fixture(scope="module")
def environment(script):
    """What a program's environment says of its model."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    with ScriptedModel([], default=script) as model:
        yield kept | {
            "CMDC_MODEL": "openai/scripted",
            "OTHER_MODEL": "openai/other",
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": model.url,
        }


@pytest.fixture(scope="module")
def daemon(environment):
    """A daemon that reaches the same model."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        daemon = DaemonProcess()
    yield daemon
    daemon.close()


@pytest.fixture
def alone(environment, poll):
    """The environment of a program that finds no daemon; afterwards nothing of its own is left."""
    with tempfile.TemporaryDirectory(prefix="x-") as folder:
        yield environment | {"CMDC_RUNTIME_DIR": str(ROOT / "no-daemon-here"), "TMPDIR": folder}
        assert poll(lambda: not runs_in(folder)), runs_in(folder)
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def served(environment, daemon, poll):
    """The environment of a program with ``CMDC_ADDRESS``; afterwards its sessions are gone."""
    yield environment | {"CMDC_ADDRESS": str(daemon.address)}
    with cmdc.Client(daemon.address) as client:
        assert client.list_sessions() == []
    below = psutil.Process(daemon.pid).children
    assert poll(lambda: len(below(recursive=True)) <= OWN_PROCESSES), below(recursive=True)


def runs_in(folder):
    """Return the processes whose temporary folder this is."""
    return [one for one in psutil.process_iter() if temporary_folder(one) == folder]


def temporary_folder(process):
    try:
        return process.environ().get("TMPDIR")
    except (psutil.Error, OSError):  # gone, or not ours to ask
        return None


@pytest.fixture
def place(request):
    """The environment of an example: with a daemon there, but for ``alone_too``."""
    return request.getfixturevalue(getattr(request, "param", "served"))


alone_too = pytest.mark.parametrize("place", ["alone", "served"], indirect=True)
"""One example of each kind is played without a daemon, too: that start is the same for all."""


@pytest.fixture
def play(script, place, tmp_path):
    """Run an example with the model's answers and what the person types."""

    def run(name, answers, typed="", raised=""):
        (tmp_path / "README.md").write_text("one\ntwo\nthree\n")
        script.answers[:], script.requests[:] = answers, []
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")],
            env=place,
            cwd=tmp_path,
            input=typed,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        if raised:
            assert raised in done.stderr.splitlines()[-1], done.stdout
        else:
            assert (done.stderr, done.returncode) == ("", 0), done.stdout
        assert script.answers == []
        return done.stdout

    return run


@alone_too
def test_streaming(play):
    """Thinking, the tool and the answer are shown as they come, and events are had once more."""
    answers = [
        (Thinking("Let me see."), call("count_lines", path="README.md")),
        Text("It has three lines.", usage=USED),
    ]
    shown, again = play("02_streaming", answers).split("\n\n")

    assert shown.splitlines() == [
        "",
        "thinks: Let me see.",
        "calls count_lines with {'path': 'README.md'}",
        "count_lines returns: README.md has 3 lines",
        "says: It has three lines.",
        "ends after 50 tokens",
    ]
    assert [line.split()[-1] for line in again.splitlines()[1:]] == [
        "request_start",
        "response_complete",
        "tool_execution_end",
        "request_start",
        "response_complete",
        "agent_end",
    ]


ASKED = "Which one? ['draft.txt', 'final.txt'] May I delete draft.txt? [y/n] \n"
ASKS = (
    call("ask_user", question="Which one?", options=["draft.txt", "final.txt"]),
    call("delete_file", name="draft.txt"),
)


@alone_too
def test_approval(play):
    """The question gets the typed answer, and the approved call is made."""
    answers = [*ASKS, call("delete_file", name="draft.txt"), "It is gone."]

    assert play("03_approval", answers, "draft.txt\ny\n") == (
        f"{ASKED}It is gone.\nLeft: ['final.txt']\n"
    )


def test_rejection(play):
    """What a person refuses is not done, and the model hears of it."""
    assert play("03_approval", [*ASKS, "I left it."], "draft.txt\nn\n") == (
        f"{ASKED}I left it.\nLeft: ['draft.txt', 'final.txt']\n"
    )


def test_steering(play, script):
    """The slow tool is killed, and the model goes on with what the user said."""
    answers = [call("search_archive", query="penguins"), "In the south."]

    assert play("04_steering", answers).splitlines() == [
        "search_archive {'query': 'penguins'} runs, so we say something",
        "steering: queued",
        "search_archive is killed: steered",
        "the model reads 1 thing(s)",
        "In the south.",
        "",
        "All in one cycle: 2 turns",
    ]
    assert script.requests[-1]["messages"][-1]["content"].startswith("Forget the archive.")


@alone_too
def test_hot_tools(play, script):
    """The model has the tools that the session has at the moment of the request."""
    answers = [
        "I do not know.",
        call("temperature", city="Bern"),
        "14 degrees.",
        call("clock"),
        "It is late.",
        "No idea.",
    ]

    assert play("05_hot_tools", answers).splitlines() == [
        "> How warm is it in Bern?",
        "  used []: I do not know.",
        "",
        "> And now?",
        "  used ['temperature']: 14 degrees.",
        "",
        "attached ('clock',), detached ('temperature',)",
        "",
        "> What time is it, and how warm?",
        "  used ['clock']: It is late.",
        "",
        "> And what time is it now?",
        "  used []: No idea.",
        "",
        "refused: [('clock', 'duplicate_in_list')]",
    ]
    had = [[tool["function"]["name"] for tool in one.get("tools", ())] for one in script.requests]
    assert had == [[], ["temperature"], ["temperature"], ["clock"], ["clock"], []]


def test_mcp_server(play, script):
    """The first request starts the server, and the model has its tool until it is detached."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    answers = [
        call("mcp__shop__price", fruit="pears"),
        "Pears are 4 euros.",
        "I do not know.",
    ]

    assert play("15_mcp_server", answers).splitlines() == [
        "Pears are 4 euros.",
        "shop is ready: mcp__shop__price",
        "I do not know.",
    ]
    had = [[tool["function"]["name"] for tool in one.get("tools", ())] for one in script.requests]
    assert had == [["mcp__shop__price"], ["mcp__shop__price"], []]


def test_model_switch(play, script):
    """Each request goes to the model in force, with the whole conversation and the options."""
    answers = [Text(text, usage=USED) for text in ("Hello, Ada.", "Ada.", "adA.")]

    assert play("06_model_switch", answers).splitlines() == [
        "> My name is Ada. Greet me in five words.",
        "openai/scripted: Hello, Ada.",
        "",
        "> What is my name?",
        "openai/other: Ada.",
        "",
        "> Spell it backwards.",
        "openai/scripted: adA.",
        "",
        "(\"model: expected 'provider:model_id' or a ModelSource, got 'no model'\",)",
        "75 tokens, 7 messages",
    ]
    assert [request["model"] for request in script.requests] == ["scripted", "other", "scripted"]
    assert [request.get("temperature") for request in script.requests] == [None, None, 0.0]


@alone_too
def test_subagents(play):
    """The parent's cycle reports when its children start, and what they come to."""
    judged = "Judge: three numbers."
    answers = [
        call("task", description="Sum README.md up.", subagent_type="reader"),
        call("read_file", path="README.md"),
        Text("Three numbers.", usage=USED),
        call("task", description=judged, subagent_type="critic"),
        Text("Too short.", usage=USED),
        "The reader was short.",
    ]
    printed = re.sub(r"s-[0-9a-f]+", "s", play("07_subagents", answers))

    assert printed.splitlines() == [
        "calls task {'description': 'Sum README.md up.', 'subagent_type': 'reader'}",
        "a reader starts, which is session s.1",
        "the reader ends, ok=True, 50 tokens: Three numbers.",
        f"calls task {{'description': '{judged}', 'subagent_type': 'critic'}}",
        "a critic starts, which is session s.2",
        "the critic ends, ok=True, 25 tokens: Too short.",
        "",
        "The reader was short.",
    ]


def test_skills(play):
    """One is loaded, and again when it has changed."""
    load = call("load_skill", name="greeting")
    printed = play("15_skills", [load, "Ahoy, Ann.", load, "Good day, Bob."])

    assert printed.splitlines() == [
        *("problems: []", "skills: ['greeting']", "Ahoy, Ann.", "Good day, Bob."),
    ]


def test_handoffs(play):
    """The clerk has its own tools and a way back, and goes on until it takes that."""
    answers = [
        call("transfer_to_billing"),
        call("invoice", number=7),
        "It is.",
        call("transfer_to_desk"),
        "At eight.",
    ]

    assert play("17_handoffs", answers).splitlines() == [
        "> Is invoice 7 paid?",
        "  desk hands over to billing, who has invoice, transfer_to_desk",
        "billing: It is.",
        "> Thank you. When do you close?",
        "  billing hands over to desk, who has transfer_to_billing",
        "desk: At eight.",
    ]


def test_guardrails(play):
    """A prompt and an answer are stopped, each by its own."""
    answers = ["Sun, sand, you.", "Sent.", "To bob@example.org."]

    assert play("18_guardrails", answers).splitlines() == [
        "Sun, sand, you.",
        "input: no_addresses: it has a mail address; ['ada@example.org.']",
        "output: no_addresses: it has a mail address; ['bob@example.org.']",
    ]


def test_checkpoint_files(play):
    """A checkpoint is a file in a folder of the application's own."""
    printed = play("19_checkpoint_files", ["Hello, Ann."])
    found = re.fullmatch(r"(/.*) has 'she has a name'\n", printed)
    (file,) = Path(found[1]).iterdir()

    assert "@" in file.name
    shutil.rmtree(found[1])


@alone_too
def test_hibernation(play):
    """The process goes and another one comes; the conversation is whole."""
    printed = play("08_hibernate", ["I know.", "42."])
    pids = re.findall(r"process (\d+|None)", printed)

    assert re.sub(r"process \d+", "process N", printed).splitlines() == [
        "I know.",
        "  idle: process N",
        "",
        "  hibernated: process None",
        "",
        "42.",
        "  idle: process N",
        "",
        "  system     'You are an agent that gets things done with the tools you ar'",
        "  user       'My favourite number is 42. Say that you know.'",
        "  assistant  'I know.'",
        "  user       'What is my favourite number?'",
        "  assistant  '42.'",
        "  restarts: 0, for nothing has crashed",
    ]
    assert len(set(pids)) == 3


def test_every_example_is_short_and_run_by_a_test():
    """An example is read as a whole, and one that nobody runs goes stale."""
    found = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    long = [path.name for path in found if len(path.read_text().splitlines()) >= LINES_MAX]

    assert len(found) >= 8
    assert long == []
    assert [path.stem for path in found if f'"{path.stem}' not in tests] == []


def test_own_strategy_is_as_long_as_the_page_says():
    """The howto names it "a strategy in 40 lines"."""
    assert "A strategy in 40 lines" in (EXAMPLES.parent / "docs/howto/reasoning.md").read_text()
    assert len((EXAMPLES / "09_own_strategy.py").read_text().splitlines()) <= 40


@alone_too
def test_own_strategy(play):
    """The verdict is typed, and one that is in doubt is asked for again."""
    answers = [
        "They are slow.",
        "They are slow.",
        '{"answer": "hm", "is_sure": false}',
        '{"answer": "buy one", "is_sure": true}',
    ]
    shown, drawn = play("09_own_strategy", answers).split("\n", 1)

    assert shown == "done: buy one (4 branches)"
    assert drawn.startswith("flowchart TD\n")


def test_map_reduce(play, script):
    """The notes of all parts are in the last question."""
    answers = ["It does something."] * 3 + ["It sleeps, eats and walks."]

    assert play("10_map_reduce", answers) == "It sleeps, eats and walks.\n"
    last = script.requests[-1]["messages"][-1]["content"]
    assert last.count("It does something.") == 3


@alone_too
def test_vote(play):
    """The most frequent answer is the result."""
    answers = ["Answer: 42", "Answer: 41", "So.\nAnswer: 42"]  # in whatever order they are asked

    assert play("11_vote", answers) == "42, by 2 of 3\n"


LOST = Error(400, "no such river")


def test_map_reduce_of_a_part_that_fails(play, script):
    """No answer is made of the others alone."""
    answers = [LOST, "It does something.", "It does something."]

    assert play("10_map_reduce", answers, raised="no such river") == ""
    assert len(script.requests) == 3


def test_vote_of_which_some_fail(play):
    """Each is reported, and the others vote; of nothing there is no winner."""
    shown = play("11_vote", [LOST, "Answer: 42", "Answer: 42"]).splitlines()

    assert "no such river" in shown[0]
    assert shown[0].startswith("no vote: ")
    assert shown[1:] == ["42, by 2 of 3"]
    lost = play("11_vote", [LOST] * 3, raised="no such river").splitlines()
    assert ["no such river" in line for line in lost] == [True] * 3


def test_refine(play):
    """The loop ends when the feedback finds nothing."""
    answers = ["Bread.", "Too short.", "Good bread.", "NOTHING TO IMPROVE"]

    assert play("12_refine", answers).splitlines() == [
        *("- Bread.", "- Too short.", "- Good bread.", "- NOTHING TO IMPROVE"),
        "Good bread.",
    ]


def test_debate(play, script):
    """Each side hears what the other one said, and the judge both."""
    answers = [*["Tabs."] * 2, *["Spaces."] * 2, "Neither."]

    assert play("13_debate", answers) == "Neither.\n"
    asked = [one["messages"][-1]["content"] for one in script.requests]
    assert [text.count("The other side says: Tabs.") for text in asked] == [0, 0, 1, 1, 0]


def test_adaptive(play):
    """Two that agree are enough; else more are asked."""
    agree, differ = ["Answer: 42"] * 2, ["Answer: red", "Answer: blue"]
    more = ["Answer: green"] * 8
    shown = play("14_adaptive", [*agree, *differ, *more]).splitlines()

    assert shown == [
        "What is six times seven? 42 (done, 2 branches)",
        "What is the best colour? green (done, 10 branches)",
    ]


def test_typed_answers(play, script):
    """A tool gets a struct, the answer is one, and the next one is a number."""
    parcel = {"city": "Rome", "weight_kg": 3}
    quote = '{"parcel": {"city": "Rome", "weight_kg": 3}, "euros": 15.0, "service": "express"}'
    asked = call("price", parcel=parcel, service="express")

    assert play("16_typed_answers", [asked, quote, '{"result": 2}']) == (
        "3 kg to Rome: 15.00 EUR\n2 days\n"
    )
    assert '"euros":15.0' in script.requests[1]["messages"][-1]["content"]


def test_images(play, script):
    """The picture is named, kept, and shown to the model again by the next process."""
    shown = play("20_images", ["A red dot.", "Angry."]).splitlines()
    first, second = (
        [one["content"] for one in request["messages"] if one["role"] == "user"]
        for request in script.requests
    )

    assert shown[0] == "A red dot."
    assert re.fullmatch(r"image/png, 69 bytes, kept as [0-9a-f]{8}", shown[1])
    assert shown[2:] == ["Angry."]
    assert [block["type"] for block in first[0]] == ["text", "image_url", "text"]
    assert second[0] == first[0]
    assert "red, angry" in second[1][1]["text"]
