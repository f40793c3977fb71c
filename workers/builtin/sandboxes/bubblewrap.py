"""``bubblewrap``: commands in a file system and namespaces of their own, made by ``bwrap``.

Tools in processes are confined as in ``landlock``, since a process that is there already can't be
put into it. A command stands behind three programs: the first makes protected paths read only in
namespaces around all others, ``bwrap`` makes the file system and the rest of the namespaces, and in
it the last one adds Landlock and seccomp.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from cmdc_runtime.confinement import apply
from cmdc_runtime.confinement.bubblewrap import arguments_of, inside
from cmdc_runtime.confinement.layer import Confinement, Network
from cmdc_runtime.confinement.policy import Policy
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.sandbox import EXECUTE_TIMEOUT_S, Sandbox, SandboxPlace
from workers.builtin.sandboxes.landlock import Landlock, launched, policy_from

PROBE_S = 30.0
"""For ``bwrap`` to run nothing; it takes 10 ms."""


class Bubblewrap(Landlock):
    """See the module."""

    def begin(self, place: SandboxPlace) -> None:
        """See that ``bwrap`` works here; see the contract."""
        super().begin(place)
        if why := _problem():
            raise SandboxUnavailable("bubblewrap", why)

    def _behind(self, program: Sequence[str], wanted: Confinement) -> Sequence[str]:
        """Return a program behind ``bwrap``."""
        inner = launched("close", inside(wanted), program)
        # All of /etc is there, and what not everybody may read is covered.
        rest = [path for path in wanted.readable if not path.startswith("/etc/")]
        shown = replace(wanted, readable=(*rest, "/etc"))
        hidden = apply.openness_of("/etc").closed
        bwrap = [
            shutil.which("bwrap") or "bwrap",
            *arguments_of(shown, hidden, self._reach.root),
        ]
        return launched("separate", wanted, [*bwrap, *inner])


@cache
def _problem() -> str:
    """Return why ``bwrap`` can't be used; "" where it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "there is no bwrap: install the package bubblewrap"
    line = [program, "--unshare-all", "--ro-bind", "/", "/", "--", "/bin/true"]
    try:
        done = subprocess.run(line, capture_output=True, timeout=PROBE_S, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} can't be run: {error}"
    said = done.stderr.decode(errors="replace").strip()[:200]
    return f"{program} does not work here: {said}" if done.returncode else ""


def create(  # noqa: PLR0913, PLR0917 - the fields of the light reference
    writable: Sequence[str] = (),
    readable: Sequence[str] = (),
    protected: Sequence[str] | None = None,
    network: Network = "off",
    allow_hosts: Sequence[str] = (),
    timeout: float = EXECUTE_TIMEOUT_S,
) -> Sandbox:
    """Return the sandbox; see ``cmdc_runtime.sandbox.Bubblewrap``."""
    policy = Policy(
        writable=tuple(writable),
        readable=tuple(readable),
        network=network,
        allow_hosts=tuple(allow_hosts),
    )
    return Bubblewrap(policy_from(policy, protected), timeout=timeout)
