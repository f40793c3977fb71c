"""A tool that kills each process which opens it again is set aside, and its session goes on."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.fault.audit import SLEEPER
from tests.fault.cases.test_poison import TURN_S, kill, replayed, set_aside

pytestmark = [pytest.mark.fault, pytest.mark.process]

SLEEPS_S = 0.3


@pytest.fixture(scope="module")
def place(new_cradle):
    """A daemon of this file's own."""
    new_cradle.start()
    return new_cradle


def opened(make, log, good, number):
    """Be unpacked: all is well in the first ``good`` processes, later ones die of a signal."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    if len(set(Path(log).read_text(encoding="utf-8").split())) > good:
        os.kill(os.getpid(), number)
    return make().dies(log, number, good)


class Deadly:
    """What dies when it is unpacked, from the time behind ``good`` on."""

    log: str
    good: int
    number: int

    def dies(self, log, number=signal.SIGSEGV, good=1):
        """Say when, and of what."""
        self.log, self.good, self.number = str(log), good, number
        return self

    def __reduce__(self):
        return opened, (type(self), self.log, self.good, self.number)


class Trap(Deadly, cmdc.Tool):
    """A tool that is opened well once."""

    name = "trap"
    description = "A trap."
    effects = "read"
    isolation = "task"

    async def execute(self, arguments, context):
        return "went well"


class Guard(Deadly, cmdc.Plugin):
    """A plugin that is opened well once."""

    name = "deadly_guard"

    def before_tool(self, call, context):
        return None


def redact(state):
    """Take nothing out."""
    return state


class Redact(Deadly):
    """A function that is opened well once."""

    def __call__(self, state):
        return state


@cmdc.tool(effects="read")
def other() -> str:
    """Be there."""
    return "there"


def opens(log):
    """Return how many processes have opened it."""
    return len(set(Path(log).read_text(encoding="utf-8").split()))


def attach_one(session, tool):
    session.attach_tool(tool)


def attach_many(session, tool):
    session.attach_tools([tool])


def replace_all(session, tool):
    session.replace_tools([other, tool])


ATTACHED = [attach_one, attach_many, replace_all]


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda one: one.name)
@pytest.mark.parametrize("attach", ATTACHED)
def test_an_attached_tool_that_kills_who_opens_it_is_set_aside(
    agent, client, tmp_path, attach, number
):
    """Two processes die of it, the third leaves it out, and so does every later one."""
    log = tmp_path / "opened"
    session = agent(tools=[other], max_restarts=2)
    attach(session, Trap().dies(log, number))
    session.run("First.", timeout=TURN_S)
    kill(session)
    result = session.run("Second.", timeout=TURN_S)
    told = set_aside(client, session)
    restarts = session.status().restarts
    kill(session)
    again = session.run("Third.", timeout=TURN_S)

    assert (result.text, again.text) == ("fine", "fine")
    assert (told.what, told.name) == ("tool", "trap")
    assert told.why.endswith("it came with the record tools_changed")
    assert len(told.digest) == 32
    assert restarts == 1  # those that fell in between are no restarts
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_a_tool_of_the_definition_is_set_aside_as_well(agent, client, scripted, tmp_path):
    """A model that still asks for it is told that it is gone; the others are as they were."""
    log = tmp_path / "opened"
    uses = [ToolCalls(ToolUse("trap", {})), ToolCalls(ToolUse("other", {})), "fine"]
    session = agent(scripted("one", *uses), tools=[Trap().dies(log), other], max_restarts=2)
    session.run("First.", timeout=TURN_S)
    kill(session)
    result = session.run("Second.", timeout=TURN_S)
    told = set_aside(client, session)
    said = [one.content for one in session.messages() if one.role == "tool_result"]

    assert result.text == "fine"
    assert (told.what, told.name) == ("tool", "trap")
    assert told.why.endswith("it came with the definition")
    assert said[0].startswith("Error: there is no tool named 'trap'. Tools: other.")
    assert said[1] == "there"
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_who_plays_the_session_again_goes_on_without_the_tool(agent, place, tmp_path):
    """It is not opened, and all that was decided is decided again."""
    log = tmp_path / "opened"
    session = agent(tools=[Trap().dies(log), other], max_restarts=2)
    session.run("First.", timeout=TURN_S)
    kill(session)
    session.run("Second.", timeout=TURN_S)
    played = replayed(session, place.address)

    assert (played.returncode, played.stderr) == (0, "")
    assert "tool_set_aside -> set_aside" in played.stdout
    assert played.stdout.endswith("records, the same\n")
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_it_stays_set_aside_in_a_session_that_is_resumed_from_what_was_saved(
    agent, client, scripted, tmp_path
):
    """The saved state knows it, though the definition that goes along with it does not."""
    log = tmp_path / "opened"
    first = agent(scripted(default="fine"), tools=[Trap().dies(log), other], max_restarts=2)
    first.run("First.", timeout=TURN_S)
    kill(first)
    first.run("Second.", timeout=TURN_S)
    saved = first.checkpoint()
    before = opens(log)
    with client.resume_session(
        first, checkpoint_id=saved.checkpoint_id, new_id="s-without"
    ) as session:
        result = session.run("Third.", timeout=TURN_S)

    assert result.text == "fine"
    assert opens(log) == before


@pytest.mark.fault_case("F91")
def test_who_looks_at_a_sleeping_session_is_answered_without_the_tool(
    agent, client, scripted, tmp_path, poll
):
    """The readers that die of it are counted, too."""
    log = tmp_path / "opened"
    session = agent(
        scripted(default="fine"),
        tools=[other],
        hibernate_after=SLEEPS_S,
        session_id=f"{SLEEPER}trap",
    )
    session.attach_tool(Trap().dies(log))
    session.run("First.", timeout=TURN_S)
    assert poll(lambda: session.status().state == "hibernated")
    contents = [one.content for one in session.messages()]
    result = session.run("Second.", timeout=TURN_S)

    assert contents[-2:] == ["First.", "fine"]
    assert result.text == "fine"
    assert set_aside(client, session).name == "trap"
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("way", ["definition", "attached"])
def test_a_session_does_not_run_without_a_plugin(agent, client, scripted, tmp_path, way):
    """It ends, and the reason names what it lacks; resumed with other plugins it goes on."""
    log, model = tmp_path / "opened", scripted(default="fine")
    guard = Guard().dies(log, good=2)  # the program opens one, too, to see whether it can
    plugins = [guard] if way == "definition" else []
    session = agent(model, plugins=plugins, max_restarts=5)
    if way == "attached":
        session.attach_plugin(guard)
    session.run("First.", timeout=TURN_S)
    saved = session.checkpoint()
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match="plugin 'deadly_guard' cannot be loaded"):
        session.run("Second.", timeout=TURN_S)
    with client.resume_session(
        session, checkpoint_id=saved.checkpoint_id, new_id=f"guarded-{way}", plugins=[]
    ) as other_one:
        result = other_one.run("Third.", timeout=TURN_S)

    assert result.text == "fine"
    assert opens(log) == 4


@pytest.mark.fault_case("F91")
def test_a_session_does_not_run_without_what_redacts_its_saved_states(agent, scripted, tmp_path):
    """Whoever reads one would see what was to be taken out."""
    log = tmp_path / "opened"
    session = agent(scripted(default="fine"), redact=Redact().dies(log), max_restarts=5)
    session.run("First.", timeout=TURN_S)
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match=r"redact '.*' cannot be loaded: processes that"):
        session.run("Second.", timeout=TURN_S)

    assert opens(log) == 3


def attach_guard(session, plugin):
    session.attach_plugin(plugin)


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda one: one.name)
@pytest.mark.parametrize("attach", [*ATTACHED, attach_guard])
def test_a_command_whose_parcel_kills_who_opens_it_first_is_refused(
    agent, client, tmp_path, attach, number
):
    """Two processes die of it; who sent it hears what it was, and the session goes on."""
    log = tmp_path / "opened"
    session = agent(tools=[other], max_restarts=3)
    session.run("First.", timeout=TURN_S)
    is_guard = attach is attach_guard
    # The program opens a plugin, too, to see whether it can.
    killer = Guard().dies(log, number, good=1) if is_guard else Trap().dies(log, number, good=0)
    name = "deadly_guard" if is_guard else "trap"
    with pytest.raises(cmdc.UsageError, match=f"processes that opened '{name}', which it brings"):
        attach(session, killer)
    told = set_aside(client, session)
    result = session.run("Second.", timeout=TURN_S)
    kill(session)
    again = session.run("Third.", timeout=TURN_S)

    assert (result.text, again.text) == ("fine", "fine")
    assert (told.what, told.name, len(told.digest)) == ("command", name, 32)
    assert opens(log) == 2 + is_guard


class Greeter(cmdc.Plugin):
    """A plugin that is opened well, and kills who tells it of the session."""

    name = "greeter"

    class Config(msgspec.Struct, frozen=True):
        log: str = ""

    def session_start(self, event, context):
        with Path(self.config.log).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.fault_case("F91")
def test_a_command_whose_plugin_kills_who_greets_it_is_refused(agent, client, tmp_path):
    """The command has no answer before that, so it would come again to each process."""
    log = tmp_path / "greeted"
    session = agent(max_restarts=2)
    with pytest.raises(cmdc.UsageError, match=r"'.*[gG]reeter.*', which it brings"):
        session.attach_plugin((Greeter, {"log": str(log)}))

    assert set_aside(client, session).what == "command"
    assert session.run("First.", timeout=TURN_S).text == "fine"
    assert opens(log) == 2


@pytest.mark.fault_case("F91")
def test_what_a_command_brings_is_blamed_by_itself(agent, client, scripted, tmp_path):
    """Neither the tools beside it nor another command is refused for it, nor one behind it."""
    log = tmp_path / "opened"
    session = agent(scripted(default="fine"), max_restarts=2)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tools([other, Trap().dies(log, good=0)])
    session.attach_tools([other])
    session.attach_tool(Trap().dies(tmp_path / "another"))

    assert set_aside(client, session).name == "trap"
    assert session.run("First.", timeout=TURN_S).text == "fine"
    assert opens(log) == 2


@pytest.mark.fault_case("F91")
def test_who_sends_it_again_has_another_try(agent, client, scripted, tmp_path):
    """What killed may be mended. Where it is not, that costs one process, and is refused."""
    log = tmp_path / "opened"
    trap = Trap().dies(log, good=0)
    session = agent(scripted(default="fine"), max_restarts=5)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tool(trap)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tool(trap)

    assert opens(log) == 3  # the next process knows of all three deaths
    assert session.run("First.", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F91")
def test_a_session_that_only_begins_is_refused_at_the_first_death(agent, client, tmp_path):
    """There is nothing to be rebuilt, and who gave the tool is there to hear of it."""
    log = tmp_path / "opened"
    with pytest.raises(cmdc.StartFailed, match="SIGSEGV"):
        agent(tools=[Trap().dies(log, good=0)])

    assert opens(log) == 1
