"""What a call's process has of the host's watch over its children: nothing."""

import signal

from workers.toolhost.call import Strays


def test_a_fork_is_not_woken_by_its_own_children():
    """Its descriptors may be those of something else by then, and a byte be written there."""
    Strays().close()

    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
