"""``Config``: what an application says once for all of its agents, in code or in a TOML file.

What is given beside it outranks it: arguments of ``create_agent``, then the blueprint, then the
config. ``Config.load`` makes one of variables over a file over the defaults. A working folder is
not searched for a file: whoever wrote what lies there could send keys to an address of his own.
All problems of a file are reported together, each with its line.

To add a field: its declaration in ``Config``, its check in ``_CHECKS``, what it does in
``config_options``, and its variable, if it has one, in ``VARIABLES``.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.foreign import text_of
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.option_checks import (
    Unfit,
    check_mcp_servers,
    check_provider_opts,
    check_skills_dirs,
    check_tools,
)
from cmdc_runtime.plain import nearest, short, text_problem
from cmdc_runtime.provider_keys import key_problem
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.subagent import SubAgent

FILE_VARIABLE: Final = "CMDC_AGENT_CONFIG"
"""Names the file, where no argument does."""
VARIABLES: Final[Mapping[str, str]] = {"CMDC_MODEL": "default_model", "CMDC_DATA_DIR": "data_dir"}
"""Which variable sets which field."""
FILE_BYTES_MAX: Final = 2**20
PROVIDERS_MAX: Final = 64
MODELS_MAX: Final = 1_024
"""Of the names in one entry of ``providers``."""
PATTERN_CHARS_MAX: Final = 512
PATH_CHARS_MAX: Final = 4_096
SHELLS: Final = ("sh", "bash", "zsh")
DEFAULT: Final = "default"
"""The ``models`` of an entry that is for every model which no other entry names."""


class ProviderConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """How some models are reached."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    models: str | list[str] = DEFAULT
    """Which: their names, a regular expression that matches the whole of a name, or "default" for
    all that no other entry is for."""
    base_url: str | None = None
    """The address of a server of one's own; it becomes the option ``api_base``."""
    api_key: str | None = None
    """The key for it; None leaves it to the agent's ``api_key`` and to variables. It is never
    shown, nor in the journal; a file with one should be closed to other users."""
    opts: dict[str, Any] = {}
    """More options of requests, over ``Config.provider_opts``: temperature, timeout, headers."""

    def is_for(self, model: str) -> bool:
        """Say whether the entry names this model; "default" names none."""
        if isinstance(self.models, str):
            return self.models != DEFAULT and re.fullmatch(self.models, model) is not None
        return model in self.models


class Config(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """What holds for each agent that is created with it, unless something else is given there."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    data_dir: str | None = None
    """Where the application keeps what is its own, with "~" for the home; None is ``~/.cmdc``.
    ``data_path``, ``logs_dir`` and ``sessions_dir`` name it and what lies in it."""
    default_model: str = "anthropic:claude-sonnet-4-5"
    """The model of an agent that is given none."""
    default_tools: list[Any] = []
    """The tools of an agent that is given none, nor has any of its blueprint."""
    provider_opts: dict[str, Any] = {}
    """Options of every request; what an entry of ``providers`` or the agent says outranks them."""
    providers: list[ProviderConfig] = []
    """How models are reached; of the entries that name one the first counts, then "default"."""
    shell: str | None = None
    """What reads the commands of the tool ``shell``, unless that says it itself: "sh", "bash" or
    "zsh"; one that is not installed is refused by its name. None: bash, and sh where it is
    missing."""
    mcp_servers: list[McpServer] = []
    """The MCP servers of an agent that is given none, nor has any of its blueprint."""
    skills_dirs: list[Any] = []
    """The folders of skills of an agent that is given none, nor has any of its blueprint; each a
    path, or a word of where it is from and a path."""

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> "Config":
        """Return what variables, a file and the defaults say, in this order.

        The file is ``path``, or the one that the variable ``CMDC_AGENT_CONFIG`` names, or
        ``cmdc/config.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``) where that is there. The
        variables are ``CMDC_MODEL`` for ``default_model`` and ``CMDC_DATA_DIR`` for ``data_dir``.

        Raises:
            InvalidOptions: the file can't be read, or values or names are wrong; it names each with
                its line.
        """
        return found_config(path, os.environ, home=Path.home()).config

    @property
    def data_path(self) -> Path:
        """Return where the application keeps what is its own, as an absolute path."""
        given = default_data_dir() if self.data_dir is None else Path(self.data_dir)
        return Path(os.path.abspath(given.expanduser()))  # noqa: PTH100 - no link is resolved

    @property
    def logs_dir(self) -> Path:
        """Return the folder for logs."""
        return self.data_path / "logs"

    @property
    def sessions_dir(self) -> Path:
        """Return the folder for files about sessions."""
        return self.data_path / "sessions"

    def ensure_dirs(self) -> None:
        """Make the three folders, for this user alone, where they are not there.

        Raises:
            OSError: one can't be made.
        """
        for folder in (self.data_path, self.logs_dir, self.sessions_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def default_model_id(self) -> str:
        """Return the default model without its provider."""
        return re.split("[:/]", self.default_model, maxsplit=1)[-1]

    def provider_of(self, model: str) -> ProviderConfig | None:
        """Return the entry of ``providers`` for a model, or None."""
        named = (one for one in self.providers if one.is_for(model))
        default = (one for one in self.providers if one.models == DEFAULT)
        return next(named, None) or next(default, None)

    def opts_of(self, model: str) -> dict[str, Any]:
        """Return the options of requests to a model."""
        entry = self.provider_of(model)
        if entry is None:
            return dict(self.provider_opts)
        address = {} if entry.base_url is None else {"api_base": entry.base_url}
        return {**self.provider_opts, **address, **entry.opts}

    def key_of(self, model: str) -> str | None:
        """Return the key of requests to a model, where the config has one."""
        entry = self.provider_of(model)
        return None if entry is None else entry.api_key


FIELDS: Final = Config.__struct_fields__


def default_data_dir() -> Path:
    """Return where an application keeps what is its own if no config says otherwise."""
    return Path.home() / ".cmdc"


# --- in the place of options ----------------------------------------------------------------------


def config_options(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` with what a config says below it; what is no option is left as it is.

    A model that is no name brings the way to reach it, and the config says nothing of it.
    """
    merged = dict(given)
    if merged.get("model") is None:
        merged["model"] = config.default_model
    for name, source in _IN_PLACE.items():
        if name not in merged and (value := getattr(config, source)):
            merged[name] = list(value)
    model, opts = merged["model"], merged.get("provider_opts", {})
    if isinstance(model, str) and isinstance(opts, dict) and (own := config.opts_of(model)):
        merged["provider_opts"] = {**own, **opts}
    subagents = merged.get("subagents")
    if isinstance(subagents, list | tuple):
        merged["subagents"] = [_with_opts(config, one) for one in subagents]
    return merged


_IN_PLACE: Final[Mapping[str, str]] = {
    "tools": "default_tools",
    "mcp_servers": "mcp_servers",
    "skills_dirs": "skills_dirs",
}
"""Options that are a field of the config, where nothing else gives them."""


def _with_opts(config: Config, subagent: object) -> object:
    """Return a subagent that has another model than its parent with the options of that."""
    if not isinstance(subagent, SubAgent) or subagent.provider_opts is not None:
        return subagent
    model: object = subagent.model
    opts = config.opts_of(model) if isinstance(model, str) else {}
    return msgspec.structs.replace(subagent, provider_opts=opts) if opts else subagent


def config_facts(config: object) -> dict[str, Any] | None:
    """Return the fields of a config that its sessions' tools and plugins see, None without one."""
    if not isinstance(config, Config):
        return None
    names = [one for one in config.default_tools if isinstance(one, str)]
    folder = str(config.data_path)
    facts = {"data_dir": folder, "default_model": config.default_model, "default_tools": names}
    return facts if config.shell is None else {**facts, "shell": config.shell}


# --- checks ---------------------------------------------------------------------------------------


def check_config(value: object) -> Config | None:
    """Return a config, or None.

    Raises:
        Unfit: it has an argument for each problem.
        TypeError: it is none.
    """
    if value is None:
        return None
    if not isinstance(value, Config):
        raise TypeError("expected a cmdc.Config, such as Config.load() returns")
    problems = [
        f".{name}{problem}"
        for name in FIELDS
        for problem in _problems(name, getattr(value, name), _CHECKS)
    ]
    if problems:
        raise Unfit(*problems)
    return value


def _problems(
    name: str, value: object, checks: Mapping[str, Callable[[object], object]]
) -> Sequence[str]:
    try:
        checks[name](value)
    except Unfit as error:
        return [text_of(one) for one in error.args]
    except Exception as error:  # noqa: BLE001 - a value may have code of its own
        return [f": {text_of(error)}"]
    return ()


def _check_path(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"expected a path, got {short(value)}")
    if (problem := text_problem(value, chars_max=PATH_CHARS_MAX, one_line=True)) is not None:
        raise TypeError(problem)


def _check_model(value: object) -> None:
    if (problem := model_problem(value)) is not None:
        raise TypeError(problem)


def _check_models(value: object) -> None:
    if isinstance(value, list):
        if not value or len(value) > MODELS_MAX:
            raise TypeError(f"expected 1 to {MODELS_MAX} names of models, got {len(value)}")
        wrong = [f"[{at}]: {why}" for at, one in enumerate(value) if (why := model_problem(one))]
        if wrong:
            raise Unfit(*wrong)
        return
    if not isinstance(value, str) or not 0 < len(value) <= PATTERN_CHARS_MAX:
        forms = "a list of names, a regular expression or 'default'"
        raise TypeError(f"expected {forms}, got {short(value)}")
    try:
        re.compile(value)
    except re.error as error:
        raise TypeError(f"{short(value)} is no regular expression: {error}") from None


def _check_address(value: object) -> None:
    if value is not None and (not isinstance(value, str) or "://" not in value):
        raise TypeError("expected an address, such as 'http://127.0.0.1:8000/v1'")


def _check_shell(value: object) -> None:
    if value is not None and value not in SHELLS:
        raise TypeError(f"expected one of {', '.join(SHELLS)}, got {short(value)}")


def _check_key(value: object) -> None:
    if value is not None and (problem := key_problem(value)) is not None:
        raise TypeError(problem)


def _check_providers(value: object) -> None:
    if not isinstance(value, list) or len(value) > PROVIDERS_MAX:
        raise TypeError(f"expected a list of at most {PROVIDERS_MAX} cmdc.ProviderConfig")
    problems: list[str] = []
    for at, entry in enumerate(value):
        if not isinstance(entry, ProviderConfig):
            problems.append(f"[{at}]: expected a cmdc.ProviderConfig, got {type(entry).__name__}")
            continue
        problems += (
            f"[{at}].{name}{problem}"
            for name in ProviderConfig.__struct_fields__
            for problem in _problems(name, getattr(entry, name), _ENTRY_CHECKS)
        )
    if problems:
        raise Unfit(*problems)


_CHECKS: Final[Mapping[str, Callable[[object], object]]] = {
    "data_dir": _check_path,
    "default_model": _check_model,
    "default_tools": check_tools,
    "provider_opts": check_provider_opts,
    "providers": _check_providers,
    "shell": _check_shell,
    "mcp_servers": check_mcp_servers,
    "skills_dirs": check_skills_dirs,
}
_ENTRY_CHECKS: Final[Mapping[str, Callable[[object], object]]] = {
    "models": _check_models,
    "base_url": _check_address,
    "api_key": _check_key,
    "opts": check_provider_opts,
}


# --- where it comes from --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundConfig:
    """A config, and of each field where its value comes from: a variable, a line or "default"."""

    config: Config
    sources: Mapping[str, str]
    file: Path | None
    """The file that was read; None where there is none."""


def user_file(environ: Mapping[str, str], *, home: Path) -> Path:
    """Return where the user's file is, be it there or not."""
    folder = environ.get("XDG_CONFIG_HOME") or ""
    base = Path(folder) if os.path.isabs(folder) else home / ".config"  # noqa: PTH117 - may be ""
    return base / "cmdc" / "config.toml"


def found_config(
    path: str | os.PathLike[str] | None, environ: Mapping[str, str], *, home: Path
) -> FoundConfig:
    """Return the config that ``Config.load`` would.

    Raises:
        InvalidOptions: as it says.
    """
    file = _chosen_file(path, environ, home=home)
    problems: list[str] = []
    values: dict[str, Any] = {}  # Any: the field's own
    sources = dict.fromkeys(FIELDS, DEFAULT)
    written = None if file is None else _Written.read(file, problems)
    if written is not None:
        values |= written.values(problems)
        sources |= {name: written.place(name) for name in values}
    for variable, name in VARIABLES.items():
        given = environ.get(variable)
        if given:  # an empty one is how a shell says "not set"
            values[name], sources[name] = given, variable
    for name, value in values.items():
        found = _problems(name, value, _CHECKS)
        if written is not None and name in _TABLES:
            problems += (written.located(name, one) for one in found)
        else:
            problems += (f"{sources[name]}: {name}{one}" for one in found)
    if problems:
        raise InvalidOptions(problems)
    return FoundConfig(Config(**values), sources, file)


def _chosen_file(
    path: str | os.PathLike[str] | None, environ: Mapping[str, str], *, home: Path
) -> Path | None:
    given: object = path if path is not None else (environ.get(FILE_VARIABLE) or None)
    if given is None:
        usual = user_file(environ, home=home)
        return usual if usual.is_file() else None
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise InvalidOptions([f"path: expected the path of a TOML file, got {short(given)}"])
    if "\0" in os.fspath(given):
        raise InvalidOptions([f"path: {short(given)} has a NUL, which no path has"])
    return Path(given).expanduser()


@dataclass(frozen=True, slots=True)
class _Written:
    """What a file says."""

    file: Path
    text: str
    table: Mapping[str, Any]  # Any: whatever TOML has
    good: dict[str, list[int]] = field(default_factory=dict)
    """Of an array of tables: the places of those that are passed on, of all in the file."""

    @classmethod
    def read(cls, file: Path, problems: list[str]) -> "_Written":
        """Return what the file says, nothing where it can't be read."""
        try:
            with file.open("rb") as opened:
                data = opened.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            problems.append(f"{file}: {error.strerror or error}")
            return cls(file, "", {})
        if len(data) > FILE_BYTES_MAX:
            problems.append(f"{file}: it has more than {FILE_BYTES_MAX:,} bytes")
            return cls(file, "", {})
        text = data.decode(errors="replace")
        try:
            data.decode()
            return cls(file, text, tomllib.loads(text))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            problems.append(f"{file}:{line}: {text_of(error)}")
        except tomllib.TOMLDecodeError as error:
            said = text_of(error)
            problems.append(f"{file}:{_broken_line(text, said)}: {said.removesuffix(_AT_END)}")
        except RecursionError as error:
            problems.append(f"{file}: {text_of(error)}")
        return cls(file, "", {})

    def place(self, name: str, within: str = "", at: int = 0) -> str:
        """Return the file and, where it is found, the line of a key.

        ``within`` is the array of tables that it lies in, ``at`` the place of its table there.
        """
        line = _line_of(self.text, name, within, at)
        if line is None and within:
            line = _line_of(self.text, within, within, at) or _line_of(self.text, within, "", 0)
        return str(self.file) if line is None else f"{self.file}:{line}"

    def located(self, name: str, problem: str) -> str:
        """Return a problem of an array of tables with its place in the file."""
        entry = _ENTRY.match(problem)
        if entry is None:
            return f"{self.place(name)}: {name}{problem}"
        at = self.good[name][int(entry[1])]
        place = self.place(entry[2] or name, name, at)
        return f"{place}: {name}[{at}]{problem[entry.end(1) + 1 :]}"

    def values(self, problems: list[str]) -> dict[str, Any]:
        """Return the fields that it sets; keys that are none are problems."""
        strangers = sorted(self.table.keys() - set(FIELDS))
        problems += (f"{self.place(key)}: {_no_key(key, FIELDS)}" for key in strangers)
        values = {name: value for name, value in self.table.items() if name in FIELDS}
        for name in _TABLES:
            if isinstance(entries := values.get(name), list):
                built = [self._entry(name, entry, at, problems) for at, entry in enumerate(entries)]
                values[name] = [one for one in built if one is not None]
                self.good[name] = [at for at, one in enumerate(built) if one is not None]
        return values

    def _entry(self, name: str, entry: object, at: int, problems: list[str]) -> object:
        if not isinstance(entry, dict):
            return entry  # the check of the field reports it
        kind = _TABLES[name]
        known, needed = kind.__struct_fields__, _needed(kind)
        problems_before = len(problems)
        problems += (
            f"{self.place(key, name, at)}: {name}[{at}]: {_no_key(key, known)}"
            for key in sorted(entry.keys() - set(known))
        )
        problems += (
            f"{self.place(name, name, at)}: {name}[{at}]: it has no {key}"
            for key in needed - entry.keys()
        )
        return None if len(problems) > problems_before else kind(**entry)


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "providers": ProviderConfig,
    "mcp_servers": McpServer,
}
"""Fields that are arrays of tables in a file, and what each of these is."""


def _needed(kind: type[msgspec.Struct]) -> set[str]:
    return {one.name for one in msgspec.structs.fields(kind) if one.required}


def _no_key(key: str, known: Sequence[str]) -> str:
    near = nearest(key, known)
    offer = f"there are {', '.join(known)}" if near is None else f"did you mean {near}?"
    return f"{short(key)} is no key of it; {offer}"


_AT_END: Final = " (at end of document)"
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)$")
BROKEN_CHARS_MAX: Final = 2**17
"""Read again, to find where a statement begins that can't be read; it takes 0.2 s."""


def _broken_line(text: str, problem: str) -> int:
    """Return the line where the statement begins that can't be read; ``problem`` has its end.

    It is behind the longest part of the file that can be read.
    """
    lines = text.split("\n")
    found = _AT_LINE.search(problem)
    last = len(text.rstrip().split("\n")) if found is None else int(found[1])
    left = BROKEN_CHARS_MAX
    for count in range(last - 1, -1, -1):
        head = "\n".join(lines[:count])
        left -= len(head)
        if left < 0:
            break
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            tomllib.loads(head)
            return count + 1
    return last


_ENTRY: Final = re.compile(r"\[(\d+)\](?:\.(\w+))?")
"""What the problem of an array of tables begins with: which of them, and which key."""
_HEADER: Final = re.compile(r"\s*\[{1,2}\s*([^\]]*?)\s*\]{1,2}\s*(?:#.*)?")


def _line_of(text: str, key: str, within: str, at: int) -> int | None:
    """Return the number of the line that sets a key or opens its table, from 1.

    ``within`` and ``key`` the same: the line that opens the ``at``-th table of the array.
    """
    wanted = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
    for number, line, table, nth in _lines(text):
        is_here = table == within and (not within or nth == at)
        if is_here and within == key:
            return number
        opens = not within and table.split(".")[0].strip("\"' ") == key
        if opens or (is_here and wanted.match(line)):
            return number
    return None


def _lines(text: str) -> Iterator[tuple[int, str, str, int]]:
    """Yield each line with its number, the table that it lies in and that table's place."""
    table, seen = "", dict[str, int]()
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            table = header[1]
            seen[table] = seen.get(table, -1) + 1
        yield number, line, table, seen.get(table, 0)


def config_rows(found: FoundConfig) -> list[tuple[str, Any, str]]:
    """Return each field with what may be shown of its value, and where that comes from.

    Any: numbers, texts, and lists and dicts of them.
    """
    shown = dict(printed_fields(found.config))
    for name in _TABLES:
        shown[name] = [dict(printed_fields(one)) for one in getattr(found.config, name)]
    return [(name, shown[name], found.sources[name]) for name in FIELDS]
