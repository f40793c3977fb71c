"""How the daemon is configured: flags over ``CMDC_*`` variables over a TOML file over defaults.

A wrong value or a misspelt name is never ignored: all problems are found first and reported
together. Paths come out absolute. To add an option, add a field to ``DaemonConfig`` with its
default and reason; flags, variables and file keys follow from the fields. What only the process
that starts the daemon may set goes into ``_FLAGS_ONLY``.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Meta

from cmdc_runtime import faults
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.plain import nearest, short
from cmdc_runtime.runtime_dir import default_runtime_dir, default_state_dir

CLIENT_VARIABLES: Final = frozenset(
    {
        "CMDC_ADDRESS",
        "CMDC_AGENT_CONFIG",
        "CMDC_DATA_DIR",
        "CMDC_AUTOSTART",
        "CMDC_MODEL",
        "CMDC_SESSION_ID",
        "CMDC_CALL_ID",
        "CMDC_COMMAND_ID",
        "CMDC_INCARNATION",
        faults.VARIABLE,
    }
)
"""Variables of applications, the command line, tool calls and fault tests: no options of it."""
FILE_VARIABLE: Final = "CMDC_CONFIG"
"""Names the TOML file, when no flag does."""
CONFIG_FILE_BYTES_MAX: Final = 2**20

_PREFIX: Final = "CMDC_"
_FLAGS_ONLY: Final = frozenset({"embedded", "owner_pid", "owned_dir", "ready_fd", "echo_fd"})
RELOADABLE: Final = frozenset({"log_level", "max_sessions", "retain_days", "spares"})
"""What a running daemon adopts from a configuration that it reads again."""
_SECRET: Final = {
    "journal": "empty for a file in state_dir, memory, or "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
}
"""What an error must not repeat, and what it says instead."""
SECRET_VARIABLES: Final = frozenset(f"{_PREFIX}{name.upper()}" for name in _SECRET)
"""Variables that the daemon's children must not inherit."""
_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
"""What the types of options are called."""
_LIKENESS_MIN: Final = 0.5
"""Of a misspelt name to the one that is offered; below it the valid names are listed."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A value for a field, and where it comes from in the words of the person who wrote it."""

    source: str
    field: str
    value: object
    is_text: bool = True
    """Text of a variable or a flag becomes a number; TOML has types of its own and keeps them."""


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a daemon; immutable for its life."""

    runtime_dir: Path
    """Sockets and lock; see ``cmdc_runtime.runtime_dir`` for the default."""
    state_dir: Path
    """The journal; see ``cmdc_runtime.runtime_dir`` for the default."""
    durability: Literal["process", "power"] = "process"
    """What an acknowledged command outlives; ``power`` waits for the disk."""
    journal: Annotated[str, Meta(pattern=r"^(memory|postgres(ql)?://.*)?$")] = ""
    """Empty: a file in ``state_dir``; ``memory``: nothing outlives the daemon; or
    ``postgresql://…``. It may hold a password, so it is never shown."""
    journal_schema: Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "cmdc"
    """Where in a PostgreSQL database the tables are: one for each daemon."""
    retain_days: Annotated[int, Meta(ge=0, le=36_500)] = 30
    """How long an ended session is kept, with its checkpoints; 0 is for ever."""
    spares: Annotated[int, Meta(ge=0, le=64)] = 2
    """Idle workers forked ahead; 3 to 5 MB each, and create_agent does not wait for a fork."""
    max_sessions: Annotated[int, Meta(ge=1, le=100_000)] = 4000
    """Live sessions; one process each."""
    starts_at_once: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Processes that become agents at a time, restarts included; the others wait for their turn.
    0 is two for each processor, and 4 at least."""
    starts_waiting: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Sessions that are being started at a time, those that wait among them; one more is refused
    as ``Busy``, which says when there is room. Restarts are never refused."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe line that is written."""
    log_format: Literal["console", "json"] = "console"
    """``console`` for people, ``json`` for machines: one object a line."""
    allow_code_by_value: Literal["same-uid", "always", "never"] = "same-uid"
    """Whose tools and plugins may come as code instead of by name."""
    agent_grace: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """Seconds that agents go on without a daemon, for the next one to adopt them; with 0 they
    end with it. Those of an embedded daemon always do."""
    embedded: bool = False
    """A private child of one application: its runtime directory goes with it."""
    owner_pid: Annotated[int, Meta(ge=1)] | None = None
    """Process with whose end the daemon ends."""
    owned_dir: Path | None = None
    """Directory of the owner's, removed by the daemon where the owner has ended before it."""
    ready_fd: Annotated[int, Meta(ge=0)] | None = None
    """Open pipe to which the daemon writes once when it takes calls."""
    echo_fd: Annotated[int, Meta(ge=0)] | None = None
    """Standard error of the application, which gets what tools print."""


def load_config(
    flags: Mapping[str, object], environ: Mapping[str, str], *, uid: int, home: Path
) -> DaemonConfig:
    """Return the merged configuration.

    ``flags`` has field names, and ``config`` for the TOML file; what is None was not given.

    Raises:
        InvalidOptions: with one line for every wrong value, unknown name and unreadable file.

    """
    problems: list[str] = []
    given = {name: value for name, value in flags.items() if value is not None}
    file = given.pop("config", None) or environ.get(FILE_VARIABLE) or None
    defaults = {
        "runtime_dir": default_runtime_dir(environ, uid=uid, home=home),
        "state_dir": default_state_dir(environ, home=home),
    }
    # Least binding first: a later source overrides an earlier one.
    found = [_Given("default", name, value) for name, value in defaults.items()]
    if file is not None:
        found += _from_file(Path(str(file)), problems)
    found += _from_environment(environ, problems)
    found += _from_flags(given, problems)
    merged: dict[str, Any] = {}  # Any: converted to the type of the field that it is for
    for item in found:
        try:
            merged[item.field] = _convert(item)
        except msgspec.ValidationError:
            problems.append(f"{item.source}: {_explain(item)}")
    if problems:
        raise InvalidOptions(problems)
    return DaemonConfig(**merged)


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of a running daemon's configuration when it is read again."""

    config: DaemonConfig
    """What holds from now on; what needs a restart has its old value."""
    applied: dict[str, object]
    """Options that change now, with their new values."""
    needs_restart: list[str]
    """Options that have changed and cannot be applied while it runs."""


def changes(running: DaemonConfig, fresh: DaemonConfig) -> Changes:
    """Return what a running daemon makes of a configuration that was just read."""
    differing = [name for name in _TYPES if getattr(running, name) != getattr(fresh, name)]
    applied = {name: getattr(fresh, name) for name in differing if name in RELOADABLE}
    return Changes(
        config=msgspec.structs.replace(running, **applied),
        applied=applied,
        needs_restart=[name for name in differing if name not in RELOADABLE],
    )


def _from_flags(given: Mapping[str, object], problems: list[str]) -> list[_Given]:
    valid = {name: _flag(name) for name in _TYPES}
    problems += _unknown((_flag(name) for name in given.keys() - _TYPES.keys()), valid.values())
    for name in _SECRET.keys() & given.keys():
        if _has_password(str(given[name])):
            problems.append(
                f"{valid[name]} holds a password, and others can read the arguments of a process: "
                f"use {_PREFIX}{name.upper()} or the config file, or ~/.pgpass"
            )
    return [_Given(valid[name], name, value) for name, value in given.items() if name in valid]


def _has_password(url: str) -> bool:
    try:
        found = urlsplit(url)
        return bool(found.password or parse_qs(found.query).get("password"))
    except ValueError:  # no URL, which is reported elsewhere
        return False


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> list[_Given]:
    valid = {f"{_PREFIX}{name.upper()}": name for name in _TYPES if name not in _FLAGS_ONLY}
    ours = {name: value for name, value in environ.items() if name.startswith(_PREFIX)}
    others = ours.keys() - valid.keys() - CLIENT_VARIABLES - {FILE_VARIABLE}
    problems += _unknown(others, (*valid, FILE_VARIABLE, *CLIENT_VARIABLES), _PREFIX)
    # An empty variable is how a shell or a unit file says "not set".
    chosen = {name: value for name, value in ours.items() if name in valid and value}
    return [_Given(name, valid[name], value) for name, value in chosen.items()]


def _from_file(path: Path, problems: list[str]) -> list[_Given]:
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_FILE_BYTES_MAX).decode()
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"config file {path}: {error}")
        return []
    valid = [name for name in _TYPES if name not in _FLAGS_ONLY]
    problems += (f"{path}: {line}" for line in _unknown(table.keys() - set(valid), valid))
    chosen = {name: value for name, value in table.items() if name in valid}
    return [_Given(f"{path}: {name}", name, value, is_text=False) for name, value in chosen.items()]


def _unknown(names: Iterable[str], valid: Iterable[str], prefix: str = "") -> Iterator[str]:
    """Yield one line for each name that nobody knows, with the nearest one that is known."""
    known = sorted(name.removeprefix(prefix) for name in valid)
    for name in sorted(names):
        near = nearest(name.removeprefix(prefix), known, _LIKENESS_MIN)
        listed = ", ".join(f"{prefix}{one}" for one in known)
        offer = f"did you mean {prefix}{near}?" if near else f"there are {listed}"
        yield f"{name} is unknown; {offer}"


def _convert(item: _Given) -> object:
    strict = not (item.is_text and isinstance(item.value, str))
    return msgspec.convert(item.value, _TYPES[item.field], strict=strict, dec_hook=_path)


def _path(wanted: type, value: object) -> object:
    """Turn text into an absolute path; msgspec asks for the types that it does not know."""
    if wanted is not Path or not isinstance(value, str | Path) or not str(value):
        raise ValueError("Expected a path")
    return Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100 - resolves no link


def _explain(item: _Given) -> str:
    """Return what a value should be, and what it is."""
    wanted = _TYPES[item.field]
    if item.field in _SECRET:
        return f"{item.field} is {_SECRET[item.field]}; what it was is not shown"
    if get_origin(wanted) is not Literal:
        return f"expected {_expected(wanted)}, got {short(item.value)}"
    choices = get_args(wanted)
    near = nearest(str(item.value), choices, _LIKENESS_MIN)
    offer = f"; did you mean {near}?" if near else ""
    return f"expected one of {', '.join(choices)}, got {short(item.value)}{offer}"


def _expected(wanted: Any) -> str:  # Any: an annotation
    """Return in words what an option takes."""
    if wanted in _WORDS:
        return _WORDS[wanted]
    bounded = (one for one in (wanted, *get_args(wanted)) if get_origin(one) is Annotated)
    kind, meta = get_args(next(bounded))
    if kind is str:
        return f"text like {meta.pattern}"
    range_ = f", {meta.ge} or more" if meta.le is None else f" from {meta.ge} to {meta.le}"
    return f"{_WORDS[kind]}{range_}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# Any: annotations, as msgspec.convert takes them.
_TYPES: Final[Mapping[str, Any]] = get_type_hints(DaemonConfig, include_extras=True)
