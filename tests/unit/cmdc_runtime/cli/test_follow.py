"""What ``cmdc monitor`` prints of one end, and ``cmdc tail --tree`` of runs that have none."""

import json

import pytest

from cmdc_runtime.cli.follow import _first, _print_down, evidence_lines, print_runs
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.client.sync.stream import Monitor
from cmdc_runtime.errors import SessionNotAlive
from cmdc_runtime.events import ReasoningBranch, ReasoningThought
from cmdc_runtime.reasons import Down, Evidence, Normal, Shutdown, Signal

KNOWN = Evidence(pid=7, killed_by="outside", state="streaming", output="loading")


def down(reason):
    return Down(
        ref="r",
        session_id="s",
        reason=reason,
        incarnation=2,
        restarting=False,
        evidence=KNOWN,
    )


@pytest.mark.parametrize(
    ("reason", "is_brief", "is_explained"),
    [
        (Signal(number=9, name="SIGKILL"), False, True),
        (Signal(number=9, name="SIGKILL"), True, False),
        (Normal(), False, False),
        (Shutdown(detail="bye"), False, False),
    ],
    ids=["failed", "brief", "normal", "shutdown"],
)
def test_a_failure_comes_with_what_is_known_of_it(capsys, reason, is_brief, is_explained):
    """An end as asked is one line, and so is everything where that is wanted."""
    notice = down(reason)
    _print_down(notice, Terminal(), is_brief=is_brief)
    more = evidence_lines(notice) if is_explained else []

    assert capsys.readouterr().out.splitlines() == [str(notice), *more]


class Quiet(Monitor):
    """A monitor whose first notice comes only while somebody waits for it."""

    def wait(self, timeout=None):
        if timeout is None:
            self.on_down(down(Normal()))
        return super().wait(timeout)


@pytest.mark.parametrize(("is_known", "note"), [(True, ""), (False, "watching s from now on\n")])
def test_who_waits_learns_that_somebody_watches(capsys, is_known, note):
    """The note goes to standard error, and only where nothing is known already."""
    watch = Quiet("s")
    if is_known:
        watch.on_down(down(Normal()))
    found = _first(watch, Terminal())
    said = capsys.readouterr()

    assert (found, said.out, said.err) == (down(Normal()), "", note)


RUN = {"run_id": "r", "strategy": "pair"}
CUT = [
    ReasoningBranch(**RUN, branch_id="first", prompt="One?"),
    ReasoningThought(**RUN, thought_id="first", content="41"),
    ReasoningBranch(**RUN, branch_id="second", prompt="Two?"),
]


class Cut:
    """The stream of a session that is given up in the middle of a run."""

    def __init__(self):
        self.left = list(CUT)

    def get(self, timeout=None):
        if not self.left:
            raise SessionNotAlive(Signal(number=9, name="SIGKILL"))
        return self.left.pop(0)


def test_a_run_whose_session_is_given_up_has_failed(capsys):
    """Its journal has no end of it: the session's own is its reason."""
    with pytest.raises(SessionNotAlive):
        print_runs(Cut(), Terminal(), as_json=False)
    head, *nodes = capsys.readouterr().out.splitlines()
    with pytest.raises(SessionNotAlive):
        print_runs(Cut(), Terminal(), as_json=True)
    [shown] = map(json.loads, capsys.readouterr().out.splitlines())

    assert head.startswith("pair r failed (")
    assert "SIGKILL" in head
    assert head.endswith(": 41")
    assert [one.split(":")[0][4:] for one in nodes] == ["first", "second"]
    assert (shown["status"], shown["answer"]) == ("failed", "41")
