"""Episodic memory: which sessions are kept, for whom, and what a new one is shown of them."""

import pytest

from cmdc_runtime import stores
from cmdc_runtime.extensions.actions import Abort, Emit, UpdateSystemContext
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTurn, BeforePrompt, SessionEnd, SessionStart
from cmdc_runtime.extensions.memory import MemoryStoreError
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.builtin.plugins import episodic_memory as episodes
from workers.builtin.plugins.episodic_memory import EpisodicMemory
from workers.builtin.stores.opening import opened

QUERY = "Write a parser for dates"
ADA = {"user_id": "ada"}
READ = ToolCall(call_id="c1", name="read", arguments={"path": "a.txt"})
CYCLE = (
    Message.user(QUERY),
    Message.assistant("First I look.", (READ,)),
    Message.tool_result("c1", "text"),
    Message.assistant("It is done."),
)


@pytest.fixture
def kept(tmp_path):
    """Where episodes are kept in this test."""
    return stores.Sqlite(path=str(tmp_path / "memory.db"))


class Session:
    """A session with the plugin, as far as the plugin sees it."""

    def __init__(self, kept, id_="s-1", user_data=ADA, **options):
        self.plugin = EpisodicMemory(memory_store=kept, **options)
        self.id = id_
        self.user_data = user_data
        self.turn = 0
        self.todos = ()
        self.messages = ()

    @property
    def context(self):
        said = [one.content for one in self.messages if one.role == "assistant"]
        return PluginContext(
            session_id=self.id,
            user_data=self.user_data,
            turn=self.turn,
            todos=self.todos,
            messages=self.messages,
            last_assistant_reply=said[-1] if said else None,
        )

    def start(self):
        return self.plugin.session_start(SessionStart(), self.context)

    def prompt(self, text=QUERY):
        return self.plugin.before_prompt(BeforePrompt(text), self.context)

    def cycle(self, messages=CYCLE, turns=2, outcome="finished"):
        self.turn += turns
        self.messages = (*self.messages, *messages)
        over = AfterTurn(outcome, None, messages, TokenUsage(), 1, 2, 1)
        assert self.plugin.after_turn(over, self.context) is None

    def end(self):
        return self.plugin.session_end(SessionEnd(), self.context)


def whole(kept, id_="s-1", query=QUERY, **more):
    """Have a session from its start to its end; return what the end says."""
    session = Session(kept, id_, **more)
    session.start()
    session.prompt(query)
    session.cycle((Message.user(query), *CYCLE[1:]))
    return session.end()


def episodes_of(kept, namespace="episodes:user:ada"):
    return opened(kept).list(namespace=namespace, limit=100)


def shown(answer):
    """Return the section that an answer orders, None without any."""
    orders = [one.name for one in answer if isinstance(one.name, UpdateSystemContext)]
    return orders[0].text if orders else None


# --- what is kept -------------------------------------------------------------------------------


def test_a_session_that_went_well_is_kept(kept):
    """Its query, plan, steps and last answer, under its id, for its user; observers hear of it."""
    assert whole(kept) == [Emit("episode_stored", {"episode_id": "s-1"})]
    [memory] = episodes_of(kept)
    assert (memory.id, memory.data) == (
        "s-1",
        {
            "content": QUERY,
            "query": QUERY,
            "plan": "First I look.",
            "tool_trajectory": ['read {"path":"a.txt"}'],
            "final_answer": "It is done.",
        },
    )


def test_todos_are_the_plan(kept):
    """As they stand at the end."""
    session = Session(kept)
    session.prompt()
    session.cycle()
    session.todos = ({"content": "look", "status": "completed"},)
    session.end()

    assert episodes_of(kept)[0].data["plan"] == "- [completed] look"


@pytest.mark.parametrize(
    ("turns", "outcomes", "is_kept"),
    [
        (1, ["finished"], False),
        (2, ["finished"], True),
        (2, ["aborted"], False),
        (1, ["finished", "finished"], True),
        (2, ["finished", "aborted", "finished"], False),
        (2, [], False),
    ],
)
def test_what_went_well_is_judged_by_turns_and_ends(kept, turns, outcomes, is_kept):
    """Two requests or more, and no cycle that was aborted or failed."""
    session = Session(kept)
    if outcomes:
        session.prompt()
    for outcome in outcomes:
        session.cycle(turns=turns, outcome=outcome)
    answer = session.end()

    assert bool(answer) is is_kept
    assert len(episodes_of(kept)) == is_kept


def test_a_judge_of_the_users_decides(kept):
    """It gets the episode and the context, and outranks the rule in both directions."""
    seen = []

    def judge(episode, context):
        seen.append((episode, context.turn))
        return episode.final_answer == "It is done."

    good = Session(kept, "good", judge_fn=judge)
    good.prompt()
    good.cycle(turns=1, outcome="aborted")
    bad = Session(kept, "bad", judge_fn=judge)
    bad.prompt()
    bad.cycle(messages=(*CYCLE, Message.assistant("Sorry.")))

    assert [bool(good.end()), bool(bad.end())] == [True, False]
    assert [(one.query, one.aborted_cycles, turn) for one, turn in seen] == [
        (QUERY, 1, 1),
        (QUERY, 0, 2),
    ]
    assert [memory.id for memory in episodes_of(kept)] == ["good"]


def test_a_judge_may_be_named(kept):
    """As any function may."""
    session = Session(kept, judge_fn="operator:ne")
    session.prompt()

    assert session.end() == [Emit("episode_stored", {"episode_id": "s-1"})]


def test_a_session_without_a_prompt_is_none(kept):
    """There would be nothing to find it by, whatever the judge says."""
    assert Session(kept, judge_fn="operator:ne").end() == []


def test_an_episode_outlives_a_compaction(kept):
    """What was noted cycle by cycle is not lost with the messages."""
    session = Session(kept)
    session.prompt()
    session.cycle()
    session.messages = (Message.user("Summary of what was said."),)
    session.cycle((Message.user("and?"), Message.assistant("All is well.")), turns=1)
    session.end()
    [memory] = episodes_of(kept)

    assert memory.data["query"] == QUERY
    assert memory.data["tool_trajectory"] == ['read {"path":"a.txt"}']
    assert memory.data["final_answer"] == "All is well."


def test_everything_kept_is_bounded(kept):
    """Long texts are cut; steps beyond the bound are counted."""
    many = tuple(
        Message.assistant("p" * 9_999, (ToolCall(call_id=f"c{at}", name="t" * 999),))
        for at in range(episodes.STEPS_MAX - 1)
    )
    session = Session(kept)
    session.prompt("q" * 9_999)
    session.cycle(many)
    session.cycle((*many[:5], Message.assistant("a" * 9_999)))
    session.end()
    [memory] = episodes_of(kept)
    steps = memory.data["tool_trajectory"]

    assert len(memory.data["query"]) == episodes.QUERY_CHARS_MAX
    assert len(memory.data["plan"]) == episodes.PLAN_CHARS_MAX
    assert len(memory.data["final_answer"]) == episodes.ANSWER_CHARS_MAX
    assert {len(step) for step in steps[:-1]} == {episodes.STEP_CHARS_MAX}
    assert (len(steps), steps[-1]) == (episodes.STEPS_MAX + 1, "... and 4 more calls")


def test_the_oldest_are_forgotten(kept):
    """Of this user; another's stay."""
    whole(kept, "bobs", user_data={"user_id": "bob"})
    for number in range(4):
        whole(kept, f"s-{number}", max_episodes_per_user=2)

    assert [memory.id for memory in episodes_of(kept)] == ["s-3", "s-2"]
    assert len(episodes_of(kept, "episodes:user:bob")) == 1


def test_a_session_that_ends_twice_is_one_episode(kept):
    """It went on after its end; what it became counts."""
    session = Session(kept)
    session.prompt()
    session.cycle()
    session.end()
    session.cycle((Message.user("more"), Message.assistant("More is done.")))
    session.end()
    [memory] = episodes_of(kept)

    assert memory.data["final_answer"] == "More is done."


# --- for whom -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user_data", "namespace"),
    [
        ({"user_id": "ada"}, "episodes:user:ada"),
        ({"user_id": 7}, "episodes:user:7"),
        ({"user_id": "shared"}, "episodes:user:shared"),
        ({"user_id": None}, "episodes:shared"),
        ({}, "episodes:shared"),
    ],
)
def test_each_user_has_a_namespace(kept, user_data, namespace):
    """Those without one share theirs, which nobody's name can be."""
    whole(kept, user_data=user_data)

    assert len(episodes_of(kept, namespace)) == 1


@pytest.mark.parametrize("user_id", ["", "x" * 201, True, 1.5, ["ada"], {"id": 1}])
@pytest.mark.parametrize("is_required", [True, False])
def test_what_is_no_id_refuses_the_session(kept, user_id, is_required):
    """It must not end up among those without a user."""
    session = Session(kept, user_data={"user_id": user_id}, require_user_id=is_required)
    answer = session.start()

    assert isinstance(answer, Abort)
    assert answer.reason.startswith("episodic_memory needs user_data['user_id'], a text of 1 to")


@pytest.mark.parametrize("user_data", [{}, {"user_id": None}])
def test_a_user_may_be_required(kept, user_data):
    """A session of nobody is refused then."""
    answer = Session(kept, user_data=user_data, require_user_id=True).start()

    assert isinstance(answer, Abort)
    assert answer.reason.endswith("got None")
    assert Session(kept, require_user_id=True).start() == []


# --- what is shown ------------------------------------------------------------------------------


def test_a_new_session_is_shown_what_is_like_it(kept):
    """At its first prompt, in the system prompt; observers hear which, the nearest first."""
    whole(kept, "s-1", "Bake rye bread")
    whole(kept, "s-2", "Write a parser for numbers")
    whole(kept, "s-3", "Write a parser for dates in rust")
    whole(kept, "s-4", "Write a parser for dates in go", user_data={"user_id": "bob"})
    session = Session(kept, "s-5")
    begun, answer = session.start(), session.prompt("Parse dates: write a parser, for dates")

    assert begun == []
    assert answer[0].name.key == "Earlier successful work"
    assert answer[1] == Emit("episodes_recalled", {"episode_ids": ["s-3", "s-2"]})
    assert shown(answer).index("dates in rust") < shown(answer).index("for numbers")
    assert "bread" not in shown(answer)
    assert "dates in go" not in shown(answer)


def test_no_more_than_top_k_are_shown(kept):
    """One's own from before does not count."""
    for number in range(5):
        whole(kept, f"s-{number}")
    session = Session(kept, "s-4", top_k=2)

    assert session.prompt()[1].payload == {"episode_ids": ["s-3", "s-2"]}


def test_it_is_shown_once(kept):
    """The section stays; a second prompt, or a process that starts again, changes nothing."""
    whole(kept)
    session = Session(kept, "s-2")

    assert shown(session.prompt()) is not None
    assert session.prompt("Something else") == []
    assert session.start() == []


def test_a_conversation_that_has_begun_recalls_at_the_start(kept):
    """By what the user said first; what was done in it belongs to its episode."""
    whole(kept)
    session = Session(kept, "s-2")
    session.messages, session.turn = CYCLE, 2

    assert shown(session.start()) is not None
    assert session.prompt("And now?") == []
    session.cycle((Message.user("And now?"), Message.assistant("Fine.")), turns=1)
    session.end()
    assert episodes_of(kept)[0].data["query"] == QUERY
    assert episodes_of(kept)[0].data["tool_trajectory"] == ['read {"path":"a.txt"}']


def test_nothing_like_it_shows_nothing(kept):
    """And is not looked for again."""
    session = Session(kept)

    assert session.prompt() == []
    whole(kept, "s-2")
    assert session.prompt() == []


def test_a_store_that_fails_is_a_failure_of_the_plugin(tmp_path):
    """The session hears of it by its event, and goes on without; the next prompt tries again."""
    (tmp_path / "memory.db").write_text("this is no database, and longer than a header" * 20)
    session = Session(stores.Sqlite(path=str(tmp_path / "memory.db")))
    with pytest.raises(
        MemoryStoreError, match=r"memory store .*memory\.db: file is not a database"
    ):
        session.prompt()

    assert not session.plugin.state.is_recalled
    assert session.plugin.fail == "open"


def test_relative_paths_begin_at_the_working_folder(tmp_path):
    """Where the session's tools work."""
    session = Session(stores.Sqlite(path="below/memory.db"))
    context = PluginContext(session_id="s-1", working_dir=str(tmp_path))
    session.plugin.before_prompt(BeforePrompt(QUERY), context)

    assert (tmp_path / "below/memory.db").exists()
