"""Every decoder of the product, by name."""

from functools import partial
from typing import Final

from scripts.fuzz import decoders, live
from scripts.fuzz.providers import provider_target
from scripts.fuzz.run import Target

TARGETS: Final = (
    Target("client_frames", 277, partial(decoders.only, decoders.take_client_frame)),
    Target("worker_frames", 200, partial(decoders.only, decoders.take_worker_frame)),
    Target("imports", 150, partial(decoders.only, decoders.take_import)),
    Target("journal_rows", 170, partial(decoders.only, decoders.take_rows)),
    Target("tool_arguments", 150, partial(decoders.only, decoders.take_arguments)),
    Target("provider_streams", 20, provider_target, is_guidable=False),
    Target("clients_of_a_daemon", 30, live.clients_target, is_guidable=False),
    Target(
        "workers_of_a_daemon",
        3,
        live.workers_target,
        batch=live.STORM_FRAMES,
        is_guidable=False,
    ),
)
"""The last three drive real processes, which cost more for each input; so they get fewer."""
