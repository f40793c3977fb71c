"""What a layer is given, and what it raises."""

from dataclasses import dataclass
from typing import Literal

Network = Literal["off", "proxy", "on"]


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process is confined to, in absolute paths without links in them."""

    writable: tuple[str, ...]
    readable: tuple[str, ...]
    protected: tuple[str, ...]
    """Relative to each writable folder; a folder ends in a slash."""
    devices: tuple[str, ...]
    network: Network
    allow_hosts: tuple[str, ...] = ()
    """What the proxy of the network "proxy" lets through, as ``hosts`` reads it."""


class LayerMissing(Exception):
    """A layer can't hold what it should on this machine.

    ``layer`` is its name, ``why`` says what is missing and what would mend it.
    """

    def __init__(self, layer: str, why: str) -> None:
        """Say both."""
        super().__init__(f"{layer}: {why}")
        self.layer, self.why = layer, why
