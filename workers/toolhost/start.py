"""How a child of the zygote becomes a tool host: a session of its own, then an exec.

A fork of the zygote would have all of litellm in memory, and the page tables of that would be
copied at each call: 10 ms and more, where a small process takes half of one. The exec keeps the
pid, so the daemon watches a host as it watches any worker. It also closes whatever was inherited,
and leaves the zygote's memory and environment behind, keys included. The address of the agent
comes over standard input: every call has the command line of its host, and is to read no path there
that leads to the daemon. What stands there is the host's name, by which its forks are known.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from cmdc_runtime.confinement.namespaces import OVER_PROCESSES, lose_at_exec
from cmdc_runtime.prctl import keep_small
from cmdc_runtime.tool_environment import passed_on
from workers.limits import apply_limits, step_forward
from workers.output import send_output

_KEPT_FDS: Final = 3
_FDS_MAX: Final = 2**31 - 1
# The path is the zygote's, whatever the environment or the folder would make of it; -P keeps that
# folder from the imports before.
_PROGRAM: Final = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep);"
    " from workers.toolhost.entry import main; main()"
)


def main(boot: dict[str, Any]) -> NoReturn:  # Any: str, int or float, by the key
    """Be the tool host that connects to ``boot["address"]``; never returns."""
    os.setsid()  # all that its calls start stays in this POSIX session, so it can be found
    if output_id := str(boot.get("output_id", "")):
        send_output(str(boot["output"]), output_id)
    step_forward()
    apply_limits(int(boot.get("max_open_files", 0)) or None)
    address = str(boot["address"])
    given, give = os.pipe()
    os.write(give, os.fsencode(address))  # a path of a socket is shorter than any pipe
    os.dup2(given, 0)
    os.set_inheritable(0, True)  # noqa: FBT003 - where 0 was free, dup2 did nothing
    os.closerange(_KEPT_FDS, _FDS_MAX)
    keep_small(is_small=False)  # what it begins with is its own, and so are its tools' pages
    # Its calls are copies of it: what it does not have, none of them can give away.
    environment = passed_on(os.environ)
    lose_at_exec(OVER_PROCESSES)  # with these a call could look into processes all the same
    os.execve(sys.executable, command(address), environment)  # noqa: S606


def command(address: str) -> list[str]:
    """Return the command line of a host with the import path of this process.

    It reads ``address`` to the end of its standard input; of that the line has the file's name.
    """
    folders = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100 - resolves no link
    path = os.pathsep.join(folders)
    return [sys.executable, "-P", "-c", _PROGRAM, path, Path(address).name]
