"""What a client writes to the log of its program."""

import logging

from cmdc_runtime.client.logged import ClientLog


def test_the_message_says_all(caplog):
    """A program without logging set up sees the message alone; a handler has the fields too."""
    log = ClientLog("cmdc_runtime.client.of_a_test")
    log.warning("down.dropped", ref="m-1", share="100%s")
    log.error("tool.crashed", cause=ValueError("boo"), tool="order")

    dropped, crashed = caplog.records
    assert (dropped.levelno, dropped.getMessage()) == (
        logging.WARNING,
        "down.dropped: ref=m-1, share=100%s",
    )
    assert (dropped.ref, dropped.filename) == ("m-1", "test_logged.py")
    assert (crashed.getMessage(), crashed.exc_info[0]) == ("tool.crashed: tool=order", ValueError)
