"""Runs in the processes of a soak: an agent that is asked how it stands writes down its memory too.

It is no part of the product: ``House`` has it loaded by the site folder of ``scripts.mutants``. The
answer to a status leaves after the file is there, so whoever has the one can read the other.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

FOLDER: Final = "SOAK_MEMORIES"
"""The variable that names the folder of the files."""
AGENT: Final = "workers.agent"
"""The module that is changed."""
POLICY: Final = "policy."
"""Before the name of a limit."""
_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def write_memories(module: ModuleType) -> None:
    """Have each agent of the module write its memory down before it answers for its status."""
    status = module.Agent.status

    def written(agent: Any) -> Any:  # Any: the product's own, unknown to this process
        _write(agent)
        return status(agent)

    module.Agent.status = written


def file_of(folder: Path, session_id: str) -> Path:
    """Return where the memory of a session is."""
    return folder / f"{session_id}.memory"


def read(folder: Path, session_id: str) -> Mapping[str, Any]:  # Any: plain values
    """Return what the session's agent remembered when it last returned its status, by name."""
    found: dict[str, Any] = msgspec.msgpack.decode(file_of(folder, session_id).read_bytes())
    return found


def _write(agent: Any) -> None:
    place = file_of(Path(os.environ[FOLDER]), str(agent._assign.session_id))
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.write_bytes(_encoder.encode(_facts(agent)))
    fresh.replace(place)


def _facts(agent: Any) -> dict[str, Any]:
    """Return every field of the memory, each limit, and what of it lives in other parts."""
    memory, parts = agent._memory, agent._performers._parts
    limits = {name: getattr(memory.policy, name) for name in _names(memory.policy)}
    return {
        **{name: getattr(memory, name) for name in _names(memory) if name != "policy"},
        **{f"{POLICY}{name}": what for name, what in limits.items() if not callable(what)},
        "pid": os.getpid(),
        "tools_loaded": sorted(parts.runner.toolbox.names),
        "plugins_loaded": {slot.plugin.name: slot.plugin.state for slot in parts.plugins._slots},
    }


def _names(value: Any) -> list[str]:
    return list(value.__struct_fields__)
