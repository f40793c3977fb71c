"""Every incident: what it is called, who plays it, and by which commands people see it.

To add one: a function in ``plays``, its row in ``PLAYS``, and its places in the prose. To show
something else of one: a part of what the function returns, and its row in ``COMMANDS``.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.incidents import shown
from scripts.incidents.place import NotHere, Setting
from scripts.incidents.plays import crashes, ends, limits, lives, starts
from scripts.incidents.stage import Blocks, Stage
from scripts.incidents.stand_ins import APP, StandIns

USUAL: Final = Setting()
WITHOUT_SPARES: Final = Setting(variables=(("CMDC_SPARES", "0"),))
"""Every start needs a fork."""
WITHOUT_CGROUPS: Final = Setting(
    command=(
        *("unshare", "--mount", "sh", "-c"),
        'mount -t tmpfs none /sys/fs/cgroup && exec "$@"',
        "sh",
    )
)
"""The daemon sees an empty folder where cgroups would be."""
FOLDER: Final = Path(__file__).parent

Key = tuple[str, str]
"""An incident and a part of what it has shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What the log is searched for beside the session's name, and what of that is shown.

    Both are words of lines; where ``only`` is empty, all lines are shown.
    """

    also: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def command(self, session: str) -> str:
        """Return what a person types."""
        found = f"journalctl -u cmdc -o cat | grep {_words(session, *self.also)}"
        return f"{found} | grep {_words(*self.only)}" if self.only else found

    def lines(self, text: str) -> str:
        """Return what it shows of the lines that were found."""
        kept = [line for line in text.splitlines() if not self.only or _has(line, self.only)]
        return "\n".join(kept)


@dataclass(frozen=True, slots=True)
class Play:
    """One incident; ``session`` is the name of the session that it happens to."""

    session: str
    perform: Callable[[Stage], Blocks]
    setting: Setting = USUAL
    search: Search = Search()


COMMANDS: Final[Mapping[str, str]] = {
    "monitor": "cmdc monitor {session}",
    "brief": "cmdc monitor {session} --brief",
    "ps": "cmdc ps",
    "log": "{search}",
    "hanging": "cmdc ps | grep -e SESSION -e {session}",
    "tree": "cmdc tree",
    "tail": "cmdc tail {session} --since 0",
    "reports": "cmdc tail _supervisor --since 0 | grep {session}",
    "stop": "cmdc stop {session} --timeout 1",
}
"""What a person types to see each part."""

_P: Final = Play
_END: Final = Search(only=("process.ended",))
_START: Final = Search(only=("process.", "child=agent"))
_LOOP: Final = Search(only=("shut_down", "incarnation=4"))
_ZYGOTE: Final = Search(also=("zygote.ended",), only=("zygote.ended", "process."))
_DAEMON: Final = Search(also=("daemon.",), only=("daemon", "process", "agent.started"))
# fmt: off
PLAYS: Final[Mapping[str, Play]] = {
    "asked":              _P("reader",      lives.asked),
    "stopped":            _P("finished",    ends.stopped),
    "shut_down":          _P("moved",       ends.shut_down),
    "raised":             _P("cashier",     crashes.raised),
    "killed":             _P("proofreader", crashes.killed),
    "terminated":         _P("writer",      crashes.terminated),
    "killed_at_stop":     _P("stubborn",    crashes.killed_at_stop),
    "segmentation_fault": _P("printer",     crashes.segmentation_fault),
    "out_of_memory":      _P("importer",    limits.out_of_memory),
    "blocked":            _P("pricer",      limits.blocked),
    "frozen":             _P("paused",      limits.frozen),
    "unkillable":         _P("stuck",       limits.unkillable),
    "exit_3":             _P("converter",   crashes.exit_3),
    "exit_0":             _P("quitter",     crashes.exit_0),
    "too_slow":           _P("sleeper",     starts.too_slow,          search=_START),
    "code_gone":          _P("librarian",   starts.code_gone,         search=_END),
    "refused_by_plugin":  _P("unlicensed",  starts.refused_by_plugin, search=_END),
    "out_of_turns":       _P("endless",     ends.out_of_turns,        search=_END),
    "silent_provider":    _P("unanswered",  ends.silent_provider,     search=_END),
    "plugin_aborted":     _P("thrifty",     ends.plugin_aborted,      search=_END),
    "never_seen":         _P("raeder",      ends.never_seen),
    "crash_loop":         _P("lapsed",      crashes.crash_loop,       search=_LOOP),
    "daemon_killed":      _P("survivor",    lives.daemon_killed,      search=_DAEMON),
    "history_broken":     _P("historian",   starts.history_broken,    search=_DAEMON),
    "memory_watched":     _P("importer-2",    limits.memory_watched,    WITHOUT_CGROUPS),
    "nursery_lost":       _P("orphaned",    starts.nursery_lost,      WITHOUT_SPARES, _ZYGOTE),
    "no_worker":          _P("homeless",    starts.no_worker,         WITHOUT_SPARES, _END),
    "worker_awaited":     _P("waiting",     starts.worker_awaited,    WITHOUT_SPARES, _END),
}
# fmt: on
"""All incidents, in the order in which they are played."""


def command(key: Key) -> str:
    """Return what a person types to see a part of an incident."""
    name, part = key
    chosen = PLAYS[name]
    search = chosen.search.command(chosen.session)
    return COMMANDS[part].format(session=chosen.session, search=search)


def play(name: str, stage: Stage) -> dict[Key, str]:
    """Play an incident and return what it shows, by its name and the part.

    Raises:
        NotHere: it cannot be staged on this machine.
        StageError: it did not go as it was meant to.
    """
    chosen = PLAYS[name]
    stand_ins = StandIns(_paths(stage))
    found: dict[Key, str] = {}
    for part, text in chosen.perform(stage).items():
        lines = chosen.search.lines(text) if part == "log" else text
        found[name, part] = shown.prompted(
            command((name, part)), shown.part(part, stand_ins.put(lines))
        )
    return found


def check_setting(setting: Setting) -> None:
    """Raise NotHere where no daemon can be started in this way."""
    if setting.command and (os.geteuid() or shutil.which(setting.command[0]) is None):
        raise NotHere(f"{setting.command[0]} needs root")


def _paths(stage: Stage) -> Mapping[str, str]:
    """Return the paths that differ from machine to machine, with their stand-ins."""
    own = {str(FOLDER / "shop.py"): f"{APP}/shop.py", str(stage.address): "/run/cmdc"}
    return own if not stage.has_place else {**own, str(stage.place.app): APP}


def _words(*words: str) -> str:
    return words[0] if len(words) == 1 else " ".join(f"-e {word}" for word in words)


def _has(line: str, words: tuple[str, ...]) -> bool:
    return any(word in line for word in words)
