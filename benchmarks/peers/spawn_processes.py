"""A peer: one process of ``multiprocessing`` per agent, each a new interpreter (``spawn``)."""

import multiprocessing

from benchmarks.peers.process_fleet import ProcessFleet


def open_fleet(url: str) -> ProcessFleet:
    """Return a fleet of this peer."""
    return ProcessFleet(multiprocessing.get_context("spawn"), url)
