"""A peer: one process of ``multiprocessing`` per agent, forked from one that has the openai SDK."""

import multiprocessing

from benchmarks.peers.process_fleet import CONVERSATION, ProcessFleet


def open_fleet(url: str) -> ProcessFleet:
    """Return a fleet of this peer."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([CONVERSATION])
    return ProcessFleet(context, url)
