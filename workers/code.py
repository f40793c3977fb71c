"""Whether the code under a name is still the code that a session took.

What a parcel has by value never changes. One by reference names a module, and an upgrade of the
application may put other code under that name while the session has no process. So the first
process that opens it writes down a digest of each module that came along; a later one compares the
files with these before it imports any of them.

Built-ins are a part of this program, which answers for its own upgrades. Installed packages that an
application's code only uses are not looked at, nor is what a module imports after it was opened.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from typing import Final, TypeAlias

import msgspec

from cmdc_runtime.packing import parcels_in
from cmdc_runtime.packing.origin import companions
from cmdc_runtime.parcels import Packed, digest_of

MODULES_MAX: Final = 1_000
"""Modules of one parcel that are looked at: the first ones by name. More is no agent's code."""

Modules: TypeAlias = Mapping[str, str]
"""Digests of modules by their names."""

_DIGEST_BYTES: Final = 8


@dataclass(slots=True)
class Code:
    """The code of one session's parcels, each known by its parcel's digest.

    ``known`` is what earlier processes took. ``is_latest``: whatever is there now is taken.
    ``news`` is what has still to be recorded.
    """

    known: dict[str, Modules] = field(default_factory=dict)
    is_latest: bool = False
    news: dict[str, dict[str, str]] = field(default_factory=dict)

    def wanted(self, packed: Packed) -> Packed:
        """Return a parcel with the code that it must have, none where any will do."""
        if self.is_latest:
            return msgspec.structs.replace(packed, code={})
        known = self.known.get(digest_of(packed), packed.code)
        return msgspec.structs.replace(packed, code=dict(known))

    def take(self, wanted: Packed) -> Packed:
        """Return a parcel, which was opened, with the code that it has; new code is noted."""
        if wanted.code:
            return wanted
        opened = with_code(wanted)
        name = digest_of(opened)
        if opened.code != self.known.get(name, {}):
            self.known[name] = self.news[name] = opened.code
        return opened


def with_code(packed: Packed) -> Packed:
    """Return a parcel, which has just been opened, with the digests of the modules it brought."""
    names = {name for one in _modules_of(packed) for name in companions(one)}
    found = {name: _digest(_loaded_spec(name)) for name in sorted(names)[:MODULES_MAX]}
    code = {name: digest for name, digest in found.items() if digest}
    return msgspec.structs.replace(packed, code=code)


def changed(packed: Packed) -> list[str]:
    """Return the modules of a parcel's code that are other ones now, or gone; imports none."""
    specs: dict[str, ModuleSpec | None] = {}
    return [name for name, digest in packed.code.items() if _digest(_spec(name, specs)) != digest]


def _modules_of(packed: Packed) -> Iterator[str]:
    """Yield the modules that are named by a parcel, or by one among its options."""
    if packed.kind == "value":
        return
    module, colon, _ = (packed.ref or "").partition(":")
    if colon:
        yield module
    for one in parcels_in(packed):
        yield from _modules_of(one)


def _loaded_spec(name: str) -> ModuleSpec | None:
    spec: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    return spec


def _spec(name: str, known: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Return where a module would be imported from, as ``importlib`` finds it; imports nothing."""
    if name not in known:
        parent, path = name.rpartition(".")[0], None
        above = _spec(parent, known) if parent else None
        if above is not None:
            path = above.submodule_search_locations
        is_findable = not parent or path is not None
        finders = sys.meta_path if is_findable else []
        specs = (finder.find_spec(name, path) for finder in finders)
        known[name] = next((spec for spec in specs if spec is not None), None)
    return known[name]


def _digest(spec: ModuleSpec | None) -> str:
    """Return the digest of a module's file, empty where it has none that can be read."""
    read = getattr(None if spec is None else spec.loader, "get_data", None)
    if spec is None or spec.origin is None or read is None:
        return ""
    try:
        data = read(spec.origin)
    except Exception:  # noqa: BLE001 - a loader may be anybody's
        return ""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
