"""What reaches a terminal: nothing that it would take for commands, whoever wrote it."""

import contextlib
import re
import types

import pytest

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.cli import follow, listing, questions, sessions, transfer
from cmdc_runtime.cli.entry import exit_status
from cmdc_runtime.cli.terminal import Drawing, Terminal, TreeRow, show_table, show_tree
from cmdc_runtime.commands import Status
from cmdc_runtime.errors import SessionParked, UsageError
from cmdc_runtime.events import Envelope, MessageDelta, PluginCrashed, TitleGenerated
from cmdc_runtime.reasons import Down, Evidence, Other
from cmdc_runtime.requests import TreeNode

HOSTILE = "a\x1b[2J\x07\x9b31m\u202eb\x00\x7f\u2066\u2028\u2029\u200b"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069]")
WILD_MS = 10**18
STATUS = Status(
    state=HOSTILE,
    session_id=HOSTILE,
    model=HOSTILE,
    incarnation=1,
    parent_id=HOSTILE,
    group_id=HOSTILE,
    reason=HOSTILE,
)
NODE = TreeNode(id=HOSTILE, kind="worker", strategy=HOSTILE, restart=HOSTILE, state=HOSTILE)
SNAPSHOT = Snapshot(
    checkpoint_id=HOSTILE,
    session_id=HOSTILE,
    label=HOSTILE,
    saved_at_ms=WILD_MS,
    schema_version=1,
    metadata={HOSTILE: HOSTILE},
)
DOWN = Down(
    ref="r",
    session_id=HOSTILE,
    reason=Other(detail=HOSTILE),
    incarnation=1,
    restarting=False,
    evidence=Evidence(output=HOSTILE, stack=HOSTILE, tools=(HOSTILE,)),
)
EVENTS = (
    MessageDelta(delta=HOSTILE),
    TitleGenerated(title=HOSTILE),
    PluginCrashed(plugin=HOSTILE, hook=HOSTILE, error=HOSTILE),
)


class Stream:
    """Events of a session that has ended."""

    def __init__(self):
        self._left = [
            Envelope(session_id=HOSTILE, index=WILD_MS, at_ms=WILD_MS, event=one) for one in EVENTS
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        """Have nothing to close."""

    def get(self, timeout=None):
        if not self._left:
            raise SessionParked(HOSTILE)
        return self._left.pop(0)


class Client:
    """A client whose daemon says hostile things."""

    def list_sessions(self):
        return [STATUS]

    list_inactive = list_sessions

    def tree(self):
        return TreeNode(id=HOSTILE, kind="supervisor", children=(NODE,))

    def list_checkpoints(self, _session):
        return [SNAPSHOT]

    def subscribe(self, _session, **_more):
        return Stream()

    def stop(self, *_given, **_more):
        raise UsageError(HOSTILE)

    approve = stop

    def monitor(self, _session, **_more):
        return types.SimpleNamespace(wait=lambda *_timeout: DOWN)


@pytest.fixture(autouse=True)
def daemon(monkeypatch):
    """Have the commands talk to it."""
    client = Client()
    engine = types.SimpleNamespace(exchange=client, call=lambda found: found)
    for module in (listing, transfer, follow, sessions, questions):
        monkeypatch.setattr(
            module, "running_client", lambda _address: contextlib.nullcontext(client), raising=False
        )
        monkeypatch.setattr(
            module, "running_engine", lambda _address: contextlib.nullcontext(engine), raising=False
        )


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (listing.ps, []),
        (listing.ps, ["--all"]),
        (listing.tree, []),
        (transfer.checkpoints, ["s"]),
        (follow.tail, ["s", "--since", "0"]),
        (follow.monitor, ["s"]),
        (sessions.stop, ["s"]),
        (questions.approve, ["s", HOSTILE]),
    ],
)
def test_no_command_passes_on_what_a_terminal_obeys(command, arguments, as_json, capsys):
    """Ids, labels, states, reasons, models and errors, in tables, lines, JSON and errors."""
    flags = ["--json"] if as_json else []
    exit_status(lambda: command.main([*arguments, *flags], standalone_mode=False))
    printed = capsys.readouterr()

    assert FORBIDDEN.findall(printed.out + printed.err) == []
    assert printed.out or printed.err


def test_usage_errors_are_shown_as_text(capsys):
    """Whatever was typed, or came out of a variable of the environment."""
    status = exit_status(lambda: listing.ps.main([HOSTILE], standalone_mode=False))
    printed = capsys.readouterr()

    assert status == 2
    assert FORBIDDEN.findall(printed.out + printed.err) == []


def test_everything_printed_is_text(capsys):
    """Pieces, lines, notes, tables and trees; line ends and tabs stay."""
    terminal = Terminal()
    terminal.piece(f"{HOSTILE}\tand\n")
    terminal.line(HOSTILE)
    terminal.note(HOSTILE)
    show_table({"A": str}, [HOSTILE])
    show_tree(TreeRow(HOSTILE, [TreeRow(f"{HOSTILE}b")]))
    with Drawing() as drawing:
        drawing.show([TreeRow(HOSTILE)])
        drawing.keep(TreeRow(HOSTILE))
    printed = capsys.readouterr()

    assert FORBIDDEN.findall(printed.out + printed.err) == []
    assert "\tand\n" in printed.out
