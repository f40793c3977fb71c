"""What may be asked for: everything wrong is named at once, with what would be right."""

import pytest

from supervisor.core.tree.specs import (
    AutoShutdown,
    ChildSpec,
    Flags,
    Strategy,
    SupervisorSpec,
    child_problems,
    flag_problems,
    spec_problems,
)


def test_all_problems_of_a_child_are_reported_at_once():
    """In the order of its fields."""
    wrong = ChildSpec(
        id="",
        start="it",
        restart="sometimes",
        shutdown=float("nan"),
        significant="yes",
        restart_delay=(1.0, "long"),
        start_timeout=-1,
        generation=-1,
        restarts=True,
    )

    assert child_problems(wrong) == [
        "id: expected text, got ''",
        "restart: expected one of permanent, transient, temporary, got 'sometimes'",
        "shutdown: expected seconds of 0 or more or None (wait for ever), got nan",
        "significant: expected True or False, got 'yes'",
        "generation: expected an int of 0 or more, got -1",
        "restarts: expected an int of 0 or more, got True",
        "restart_delay: expected two times in seconds, got (1.0, 'long')",
        "start_timeout: expected seconds or None, got -1",
    ]


def test_all_problems_of_flags_are_reported_at_once():
    """The same holds for a supervisor."""
    wrong = Flags(
        strategy="one_for_two",
        max_restarts=True,
        max_seconds=float("inf"),
        auto_shutdown=None,
        max_children=-3,
        resumes=1,
        stop_reason=7,
    )

    assert flag_problems(wrong) == [
        (
            "strategy: expected one of one_for_one, one_for_all, rest_for_one, dynamic, "
            "got 'one_for_two'"
        ),
        "auto_shutdown: expected one of never, any_significant, all_significant, got None",
        "max_restarts: expected an int of 0 or more, got True",
        "max_seconds: expected seconds above 0, got inf",
        "max_children: expected an int of 0 or more, got -3",
        "max_children: only a dynamic supervisor has it",
        "resumes: expected True or False, got 1",
        "stop_reason: expected text or None, got 7",
    ]


def test_who_says_nothing_gets_otps_defaults():
    """And Elixir's 3 restarts in 5 s; a child of no earlier life begins with its first process."""
    flags, child = Flags(), ChildSpec(id="a", start="it")

    assert (flags.strategy, flags.max_restarts, flags.max_seconds) == ("one_for_one", 3, 5.0)
    assert (flags.auto_shutdown, flags.max_children, flags.resumes) == ("never", None, False)
    assert (child.restart, child.shutdown, child.significant) == ("permanent", 5.0, False)
    assert (child.restart_delay, child.start_timeout) == ((0.0, 0.0), None)
    assert (child.generation, child.restarts) == (0, 0)


def test_a_window_of_no_time_is_refused():
    """No two restarts would ever be within it."""
    for seconds in (0, 0.0):
        assert flag_problems(Flags(max_seconds=seconds)) == [
            f"max_seconds: expected seconds above 0, got {seconds}"
        ]


@pytest.mark.parametrize("value", [0, 0.0, 5, None])
def test_every_grace_is_a_grace(value):
    """0 kills at once, None waits for ever."""
    assert child_problems(ChildSpec(id="a", start="it", shutdown=value)) == []


@pytest.mark.parametrize(
    ("child", "problem"),
    [
        (ChildSpec(id=7, start="it"), "id: expected text, got 7"),
        (ChildSpec(id=["a"], start="it"), "id: expected text, got ['a']"),
        (
            ChildSpec(id="a", start="it", restart_delay=(1.0,)),
            "restart_delay: expected two times in seconds, got (1.0,)",
        ),
        (
            ChildSpec(id="a", start=SupervisorSpec(), start_timeout=3.0),
            "start_timeout: a supervisor has none, its children have",
        ),
        (
            ChildSpec(id="a", start="it", restart="permanent", significant=True),
            "significant: a permanent child ends nothing, make it transient",
        ),
    ],
)
def test_a_child_that_was_made_by_code_is_checked_too(child, problem):
    """Whatever code puts into a specification, the check says what is wrong and never fails."""
    assert child_problems(child) == [problem]


def test_words_in_place_of_members_are_reported():
    """A strategy that is only text would be none of them, so it is no strategy."""
    problems = flag_problems(Flags(strategy="dynamic", auto_shutdown="never"))

    assert [line.split(":")[0] for line in problems] == ["strategy", "auto_shutdown"]


def test_problems_below_say_where_they_are():
    """A path of children leads to what is wrong."""
    deep = SupervisorSpec(children=(ChildSpec(id="x", start="it", shutdown=-1),))
    spec = SupervisorSpec(
        flags=Flags(strategy=Strategy.DYNAMIC),
        children=(
            ChildSpec(id=["a"], start="it"),
            ChildSpec(id="b", start=deep, restart="transient", significant=True),
            ChildSpec(id="b", start="it"),
        ),
    )

    assert spec_problems(spec) == [
        "child ['a']: id: expected text, got ['a']",
        (
            "child 'b': child 'x': shutdown: expected seconds of 0 or more or None "
            "(wait for ever), got -1"
        ),
        "child 'b': significant: its supervisor has auto_shutdown never",
        "child 'b': the id is taken by an earlier child",
        "children: a dynamic supervisor starts with none",
    ]


def test_a_dynamic_supervisor_ends_for_no_child():
    """Its children come and go."""
    flags = Flags(strategy=Strategy.DYNAMIC, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT)

    assert flag_problems(flags) == [
        "auto_shutdown: a dynamic supervisor has none, got all_significant"
    ]
