"""Options that several commands share, and what they mean.

Who asks about sessions needs a daemon that runs; only who starts an agent may get one of its own.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from cmdc_runtime.commands import PROMPT_CHARS_MAX
from cmdc_runtime.config import DEFAULT, FoundConfig, found_config
from cmdc_runtime.errors import DaemonUnavailable, InvalidTool
from cmdc_runtime.plain import short
from cmdc_runtime.runtime_dir import candidate_runtime_dirs, find_daemon

if TYPE_CHECKING:
    from cmdc_runtime.client.engine import ClientEngine
    from cmdc_runtime.client.sync.session import Client

F = TypeVar("F", bound=Callable[..., Any])  # Any: a command's own parameters

address_option: Final = click.option(
    "--address",
    envvar="CMDC_ADDRESS",
    metavar="DIR",
    help="Runtime directory of the daemon.  [default: $CMDC_ADDRESS, else one that runs]",
)
json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="One JSON value per line, for programs."
)

provider_opt_option: Final = click.option(
    "--provider-opt",
    "provider_opts",
    multiple=True,
    metavar="KEY=VALUE",
    help="Passed to the provider; a value that is JSON but no text is taken as JSON.",
)

_AGENT_OPTIONS: Final = (
    click.option(
        "--model",
        envvar="CMDC_MODEL",
        metavar="PROVIDER:MODEL",
        help="For example openai:gpt-4o-mini.  [default: $CMDC_MODEL, else that of the config]",
    ),
    click.option(
        "--tool",
        "tools",
        multiple=True,
        metavar="NAME",
        help="read_file, list_dir, shell or module:name; may be repeated.",
    ),
    click.option("--system", metavar="TEXT", help="System prompt."),
    click.option(
        "--working-dir",
        type=click.Path(exists=True, file_okay=False),
        default=".",
        help="Where the tools work.  [default: here]",
    ),
    click.option("--session-id", metavar="ID", help="Name of the session.  [default: a new one]"),
    click.option("--keep", is_flag=True, help="Leave the session running at the end."),
    click.option("--api-base", metavar="URL", help="Short for --provider-opt api_base=URL."),
    provider_opt_option,
    address_option,
)


def agent_options(command: F) -> F:
    """Give a command every option about the agent that it starts."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """What the options say about an agent to start; ``address`` None is a daemon of one's own."""

    address: str | None
    keep: bool
    session_id: str | None
    options: Mapping[str, Any]  # Any: keyword arguments of create_agent

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "AgentChoice":
        """Return the choice that the values of ``agent_options`` make.

        Raises:
            click.UsageError: the model is missing, or an option cannot be read.
            InvalidTool: no tool is called so.
            DaemonUnavailable: the session is to be kept, and no daemon would keep it.

        """
        found = agent_config()
        if not given["model"] and found.sources["default_model"] == DEFAULT:
            raise click.UsageError(
                "no model: name one with --model, for example --model openai:gpt-4o-mini, or set "
                "CMDC_MODEL, or default_model in ~/.config/cmdc/config.toml; for a server of your "
                "own add --api-base URL"
            )
        provider_opts = provider_opts_of(given["provider_opts"])
        if given["api_base"]:
            provider_opts["api_base"] = given["api_base"]
        _check_tools(given["tools"])
        address = given["address"] or _running()
        if given["keep"] and address is None and not _is_autostart():
            raise DaemonUnavailable(f"--keep needs a daemon that goes on; {_none_runs()}")
        return cls(
            address=address,
            keep=given["keep"],
            session_id=given["session_id"],
            options={
                "model": given["model"] or found.config.default_model,
                **({"tools": list(given["tools"])} if given["tools"] else {}),
                "system_prompt": given["system"],
                "working_dir": given["working_dir"],
                "provider_opts": provider_opts,
                "config": found.config,
            },
        )


def agent_config(file: str | None = None) -> FoundConfig:
    """Return what holds for new agents: what ``cmdc.Config.load(file)`` finds.

    Raises:
        InvalidOptions: the file or a variable has something wrong.
    """
    return found_config(file, os.environ, home=Path.home())


@contextlib.contextmanager
def running_client(address: str | None) -> "Iterator[Client]":
    """Lend a client of a daemon that runs.

    Raises:
        DaemonUnavailable: there is none; none is started.

    """
    from cmdc_runtime.client.sync.session import Client  # noqa: PLC0415 - loads zmq

    with contextlib.closing(Client(running_address(address))) as client:
        yield client


@contextlib.contextmanager
def running_engine(address: str | None) -> "Iterator[ClientEngine]":
    """Lend the calls of a client that only commands make, at a daemon that runs.

    Raises:
        DaemonUnavailable: there is none; none is started.

    """
    from cmdc_runtime.client.engine import ClientEngine  # noqa: PLC0415 - loads zmq

    with contextlib.closing(ClientEngine(running_address(address))) as engine:
        yield engine


def running_address(address: str | None) -> str:
    """Return the address that was given, else that of a daemon that runs.

    Raises:
        DaemonUnavailable: there is none; none is started.

    """
    chosen = address or _running()
    if chosen is None:
        raise DaemonUnavailable(_none_runs())
    return chosen


def provider_opts_of(given: Iterable[str]) -> dict[str, object]:
    """Return what ``provider_opt_option`` was given.

    Raises:
        click.UsageError: one is no KEY=VALUE.

    """
    return dict(map(_provider_opt, given))


def text_of(argument: str) -> str:
    """Return a prompt as it was given, or what standard input holds if it is ``-``.

    Raises:
        click.UsageError: it is longer than a prompt may be.

    """
    if argument != "-":
        return argument
    return _bounded(sys.stdin.read(PROMPT_CHARS_MAX + 1))


def line_of_input() -> str:
    """Return the next line of standard input with its end, or nothing where there is none.

    Raises:
        click.UsageError: it is longer than a prompt may be.

    """
    return _bounded(sys.stdin.readline(PROMPT_CHARS_MAX + 1))


def _check_tools(names: Iterable[str]) -> None:
    """Refuse a short name that no tool has; what a module has is for the agent to find."""
    from cmdc_runtime.packing import built_ins  # noqa: PLC0415 - with the client

    known = built_ins("tool")
    for name in names:
        if ":" not in name and name not in known:
            listed = ", ".join(sorted(known))
            raise InvalidTool(f"--tool: expected module:name or one of {listed}, got {short(name)}")


def _bounded(text: str) -> str:
    if len(text) > PROMPT_CHARS_MAX:
        raise click.UsageError(
            f"a prompt on standard input is over {PROMPT_CHARS_MAX} characters; put it into a file "
            "and let the agent read that"
        )
    return text


def _running() -> str | None:
    found = find_daemon(os.environ, uid=os.getuid(), home=Path.home())
    return None if found is None else str(found.directory)


def _is_autostart() -> bool:
    from cmdc_runtime.client.detached import is_autostart  # noqa: PLC0415 - where no daemon runs

    return is_autostart(os.environ)


def _none_runs() -> str:
    places = candidate_runtime_dirs(os.environ, home=Path.home())
    return (
        f"no daemon runs in {' or '.join(map(str, places))}: start one with `cmdc serve`, or name "
        "its runtime directory with --address"
    )


def _provider_opt(text: str) -> tuple[str, object]:
    key, mark, value = text.partition("=")
    if not (key and mark):
        raise click.UsageError(  # without what it was, which may be a key
            f"--provider-opt takes KEY=VALUE, and one of {len(text)} characters has no = or no KEY"
        )
    try:
        return key, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return key, value
