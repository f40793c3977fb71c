"""A tool, or a plugin's hook, that kills each process which rebuilds is set aside, by its name."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.process import EXIT_BAD_OPTIONS
from cmdc_runtime.testing import ToolCalls, ToolUse
from supervisor.core.exits import DEATHS_MAX, STEPS_MAX
from tests.fault.audit import SLEEPER
from tests.fault.cases.test_poison import TURN_S, kill, replayed, set_aside

pytestmark = [pytest.mark.fault, pytest.mark.process]

SLEEPS_S = 0.3
NEVER_S = 86_400.0
"""As the time that a restart counts for: none of a test is forgotten."""


DEATHS = {
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "a thread's": lambda: ThreadPoolExecutor().submit(DEATHS["SIGTERM"]).result(),
    "exit 0": lambda: os._exit(0),
    "exit 1": lambda: os._exit(1),
    "exit 78": lambda: os._exit(EXIT_BAD_OPTIONS),
}


@pytest.fixture(scope="module")
def place(shared_daemon):
    """A daemon of this file's own."""
    shared_daemon.start()
    return shared_daemon


def opened(make, log, good, way):
    """Be unpacked: all is well in the first ``good`` processes, later ones die in this way."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    if len(set(Path(log).read_text(encoding="utf-8").split())) > good:
        DEATHS[way]()
    return make().dies(log, way, good)


class Deadly:
    """What dies when it is unpacked, from the time behind ``good`` on."""

    log: str
    good: int
    way: str

    def dies(self, log, way="SIGSEGV", good=1):
        """Say when, and of what."""
        self.log, self.good, self.way = str(log), good, way
        return self

    def __reduce__(self):
        return opened, (type(self), self.log, self.good, self.way)


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
@pytest.mark.parametrize("way", DEATHS)
@pytest.mark.parametrize("attach", ATTACHED)
def test_an_attached_tool_that_kills_who_opens_it_is_set_aside(
    agent, client, tmp_path, attach, way
):
    """Two processes die of it, the third leaves it out, and so does every later one."""
    log = tmp_path / "opened"
    session = agent(tools=[other], max_restarts=2)
    attach(session, Trap().dies(log, way))
    session.run("First.", timeout=TURN_S)
    kill(session)
    result = session.run("Second.", timeout=TURN_S)
    reported = set_aside(client, session)
    restarts = session.status().restarts
    kill(session)
    again = session.run("Third.", timeout=TURN_S)

    assert (result.text, again.text) == ("fine", "fine")
    assert (reported.what, reported.name) == ("tool", "trap")
    assert reported.why.endswith("it came with the record tools_changed")
    assert len(reported.digest) == 32
    assert restarts == 1  # those that fell in between are no restarts
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_a_tool_of_the_definition_is_set_aside_as_well(agent, client, scripted, tmp_path):
    """A model that still asks for it reads that it is gone; the others are as they were."""
    log = tmp_path / "opened"
    uses = [ToolCalls(ToolUse("trap", {})), ToolCalls(ToolUse("other", {})), "fine"]
    session = agent(scripted("one", *uses), tools=[Trap().dies(log), other], max_restarts=2)
    session.run("First.", timeout=TURN_S)
    kill(session)
    result = session.run("Second.", timeout=TURN_S)
    reported = set_aside(client, session)
    said = [one.content for one in session.messages() if one.role == "tool_result"]

    assert result.text == "fine"
    assert (reported.what, reported.name) == ("tool", "trap")
    assert reported.why.endswith("it came with the definition")
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
@pytest.mark.parametrize("way", ["SIGSEGV", "exit 78"])
@pytest.mark.parametrize("how", ["definition", "attached"])
def test_a_session_does_not_run_without_a_plugin(  # noqa: PLR0913, PLR0917
    agent, client, scripted, tmp_path, how, way
):
    """It ends, and the reason names what it lacks; resumed with other plugins it goes on."""
    log, model = tmp_path / "opened", scripted(default="fine")
    guard = Guard().dies(log, way, good=2)  # the program opens one, too, to see whether it can
    plugins = [guard] if how == "definition" else []
    session = agent(model, plugins=plugins, max_restarts=5)
    if how == "attached":
        session.attach_plugin(guard)
    session.run("First.", timeout=TURN_S)
    saved = session.checkpoint()
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match="plugin 'deadly_guard' cannot be loaded"):
        session.run("Second.", timeout=TURN_S)
    with client.resume_session(
        session, checkpoint_id=saved.checkpoint_id, new_id=f"guarded-{how}-{way[-2:]}", plugins=[]
    ) as other_one:
        result = other_one.run("Third.", timeout=TURN_S)

    assert result.text == "fine"
    assert opens(log) == 4


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("way", ["SIGSEGV", "exit 78"])
def test_a_session_does_not_run_without_what_redacts_its_saved_states(
    agent, scripted, tmp_path, way
):
    """Whoever reads one would see what was to be taken out."""
    log = tmp_path / "opened"
    session = agent(scripted(default="fine"), redact=Redact().dies(log, way), max_restarts=5)
    session.run("First.", timeout=TURN_S)
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match=r"redact '.*' cannot be loaded: processes that"):
        session.run("Second.", timeout=TURN_S)

    assert opens(log) == 3


def attach_guard(session, plugin):
    session.attach_plugin(plugin)


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("way", DEATHS)
@pytest.mark.parametrize("attach", [*ATTACHED, attach_guard])
def test_a_command_whose_packed_code_kills_who_opens_it_first_is_refused(
    agent, client, tmp_path, attach, way
):
    """Two processes die of it; who sent it hears what it was, and the session goes on."""
    log = tmp_path / "opened"
    session = agent(tools=[other], max_restarts=3)
    session.run("First.", timeout=TURN_S)
    is_guard = attach is attach_guard
    # The program opens a plugin, too, to see whether it can.
    killer = Guard().dies(log, way, good=1) if is_guard else Trap().dies(log, way, good=0)
    name = "deadly_guard" if is_guard else "trap"
    with pytest.raises(cmdc.UsageError, match=f"processes that opened '{name}', which it brings"):
        attach(session, killer)
    reported = set_aside(client, session)
    result = session.run("Second.", timeout=TURN_S)
    kill(session)
    again = session.run("Third.", timeout=TURN_S)

    assert (result.text, again.text) == ("fine", "fine")
    assert (reported.what, reported.name, len(reported.digest)) == ("command", name, 32)
    assert opens(log) == 2 + is_guard


class Greeter(cmdc.Plugin):
    """A plugin that is opened well, and kills who notifies it of the session."""

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


class Starter(cmdc.Plugin):
    """A plugin that kills whoever notifies it of the session's start, but for the first time."""

    name = "starter"
    fail = "open"

    class Config(msgspec.Struct, frozen=True):
        log: str = ""
        way: str = ""

    def session_start(self, event, context):
        with Path(self.config.log).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        if opens(self.config.log) > 1:
            DEATHS[self.config.way]()

    def before_prompt(self, event, context):
        return cmdc.Emit("asked")


class StartGuard(Starter):
    """One without which there is to be no session."""

    name = "start_guard"
    fail = "closed"


class StartOnce(Starter):
    """One that is not asked any more when it has failed."""

    name = "start_once"
    fail = "disable"


class StartSpender(Starter):
    """One that has something written down before it kills."""

    name = "start_spender"

    async def session_start(self, event, context):
        await context.session.complete("Shall I?")
        await context.session.checkpoints()  # the daemon answers behind what was written
        super().session_start(event, context)


HEARD = {Starter: ["asked"] * 3, StartOnce: ["asked"]}


def begun(agent, model, plugin, how="definition"):
    """Return a session with this plugin that has answered, and a checkpoint of it."""
    session = agent(model, plugins=[plugin] if how == "definition" else [], max_restarts=4)
    if how == "attached":
        session.attach_plugin(plugin)
    session.run("First.", timeout=TURN_S)
    return session, session.checkpoint()


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize(
    ("kind", "way", "how"),
    [
        (Starter, "SIGSEGV", "definition"),
        (Starter, "exit 0", "attached"),
        (Starter, "exit 78", "definition"),
        (StartOnce, "SIGSEGV", "attached"),
    ],
)
def test_a_plugin_that_kills_who_greets_it_has_failed_at_that(  # noqa: PLR0913, PLR0917
    agent, client, scripted, tmp_path, kind, way, how
):
    """Two processes die of it; it hears of no start any more, and its ``fail`` says the rest."""
    log = tmp_path / "greeted"
    session, _ = begun(agent, scripted(default="fine"), (kind, {"log": str(log), "way": way}), how)
    with session.subscribe(since=0, types=["plugin:asked", "agent_end"]) as stream:
        kill(session)
        second = session.run("Second.", timeout=TURN_S)
        reported = set_aside(client, session)
        restarts = session.status().restarts
        kill(session)
        third = session.run("Third.", timeout=TURN_S)
        heard, ends = [], 0
        while ends < 3:
            event = stream.get(TURN_S).event
            ends += event.kind == "agent_end"
            heard += [] if event.kind == "agent_end" else [event.name]

    assert (second.text, third.text) == ("fine", "fine")
    assert (reported.what, reported.name) == ("session_start", kind.name)
    assert reported.why == "processes in which it heard session_start have died of that"
    assert restarts == 1  # those that fell in between are no restarts
    assert opens(log) == 3
    assert heard == HEARD[kind]


@pytest.mark.fault_case("F91")
def test_a_session_does_not_run_without_a_guard_that_kills_who_greets_it(
    agent, client, scripted, tmp_path
):
    """It ends, and the reason names what it lacks; resumed with other plugins it goes on."""
    log, model = tmp_path / "greeted", scripted(default="fine")
    options = {"log": str(log), "way": "SIGSEGV"}
    session, saved = begun(agent, model, (StartGuard, options))
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match="start_guard failed at session_start: proc"):
        session.run("Second.", timeout=TURN_S)
    with client.resume_session(
        session, checkpoint_id=saved.checkpoint_id, new_id="start-guarded", plugins=[]
    ) as other_one:
        result = other_one.run("Third.", timeout=TURN_S)

    assert result.text == "fine"
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_what_was_written_before_it_killed_is_there_once(agent, scripted, tmp_path):
    """Such a death is one of an incarnation of its own, which the restarts are for."""
    log = tmp_path / "greeted"
    options = {"log": str(log), "way": "SIGSEGV"}
    session, _ = begun(agent, scripted(default="fine"), (StartSpender, options))
    before = session.status()
    kill(session)
    session.run("Second.", timeout=TURN_S)
    after = session.status()
    kill(session)
    said = [one.content for one in session.messages() if one.role == "user"]
    used = session.status().total_tokens

    assert (before.incarnation, after.incarnation) == (1, 4)
    assert said == ["First.", "Second."]
    assert used == after.total_tokens > before.total_tokens
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_who_plays_a_session_with_such_a_plugin_goes_on(agent, place, scripted, tmp_path):
    """Nothing of the journal was left out for it."""
    log = tmp_path / "greeted"
    options = {"log": str(log), "way": "SIGSEGV"}
    session, _ = begun(agent, scripted(default="fine"), (Starter, options))
    kill(session)
    session.run("Second.", timeout=TURN_S)
    played = replayed(session, place.address)

    assert (played.returncode, played.stderr) == (0, "")
    assert played.stdout.endswith("records, the same\n")
    assert opens(log) == 3


@pytest.mark.fault_case("F91")
def test_what_a_command_brings_is_charged_by_itself(agent, client, scripted, tmp_path):
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


def named(client, session, many):
    """Return the names of what was reported as set aside, this many of them."""
    with client.subscribe(session, since=0, types=["record_set_aside"]) as stream:
        return [stream.get(TURN_S).event.name for _ in range(many)]


@pytest.mark.fault_case("F91")
def test_two_killers_are_set_aside_one_after_the_other(agent, client, scripted, tmp_path):
    """Their four deaths are more than the restarts that a session has, and cost none of them."""
    first, second = tmp_path / "opened", tmp_path / "greeted"
    session = agent(scripted(default="fine"), tools=[other], max_seconds=NEVER_S)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tool(Trap().dies(first, good=0))
    with pytest.raises(cmdc.UsageError, match=r"'.*[gG]reeter.*', which it brings"):
        session.attach_plugin((Greeter, {"log": str(second)}))
    names = named(client, session, 2)

    assert session.run("First.", timeout=TURN_S).text == "fine"
    assert names[0] == "trap"
    assert "greeter" in names[1].lower()
    assert (opens(first), opens(second)) == (2, 2)


@pytest.mark.fault_case("F91")
def test_a_plugin_that_has_spoken_and_a_tool_are_set_aside(agent, client, scripted, tmp_path):
    """What kills as the session is rebuilt and what a command brings add up to nothing, too."""
    first, second = tmp_path / "greeted", tmp_path / "opened"
    plugin = (StartSpender, {"log": str(first), "way": "SIGSEGV"})
    session = agent(scripted(default="fine"), plugins=[plugin], max_seconds=NEVER_S)
    session.run("First.", timeout=TURN_S)
    kill(session)
    session.run("Second.", timeout=TURN_S)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tool(Trap().dies(second, good=0))
    names = named(client, session, 2)

    assert session.run("Third.", timeout=TURN_S).text == "fine"
    assert names == ["start_spender", "trap"]
    assert (opens(first), opens(second)) == (3, 2)


@pytest.mark.fault_case("F91")
def test_a_killer_leaves_the_restarts_to_ordinary_crashes(agent, scripted, tmp_path):
    """All three are survived behind it, and the fourth ends the session as ever."""
    log = tmp_path / "opened"
    session = agent(scripted(default="fine"), max_seconds=NEVER_S)
    with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
        session.attach_tool(Trap().dies(log, good=0))
    texts = []
    for _ in range(3):
        kill(session)
        texts.append(session.run("Again.", timeout=TURN_S).text)
    kill(session)
    with pytest.raises(cmdc.SessionNotAlive, match=r"3 restarts in .* were not enough"):
        session.run("Once more.", timeout=TURN_S)

    assert texts == ["fine"] * 3
    assert opens(log) == 2


@pytest.mark.fault_case("F91")
def test_ever_new_killers_use_the_restarts_up_in_the_end(agent, scripted, tmp_path):
    """Behind so many deaths at known steps each one more is a crash like any other."""
    logs = [tmp_path / f"opened-{number}" for number in range(STEPS_MAX + 1)]
    session = agent(
        scripted(default="fine"), max_restarts=1, max_seconds=NEVER_S, restart_delay=(0.0, 0.0)
    )
    for log in logs[:-1]:
        with pytest.raises(cmdc.UsageError, match="processes that opened 'trap', which it brings"):
            session.attach_tool(Trap().dies(log, good=0))
    with pytest.raises(cmdc.SessionNotAlive, match=r"1 restarts in .* were not enough"):
        session.attach_tool(Trap().dies(logs[-1], good=0))

    assert [opens(log) for log in logs] == [DEATHS_MAX] * len(logs)
