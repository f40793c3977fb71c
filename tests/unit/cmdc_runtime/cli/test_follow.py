"""What ``cmdc monitor`` prints of one end."""

import pytest

from cmdc_runtime.cli.follow import _first, _print_down, evidence_lines
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.client.sync.stream import Monitor
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


@pytest.mark.parametrize(("is_told", "note"), [(True, ""), (False, "watching s from now on\n")])
def test_who_waits_is_told_that_somebody_watches(capsys, is_told, note):
    """The note goes to standard error, and only where nothing is known already."""
    watch = Quiet("s")
    if is_told:
        watch.on_down(down(Normal()))
    found = _first(watch, Terminal())
    said = capsys.readouterr()

    assert (found, said.out, said.err) == (down(Normal()), "", note)
