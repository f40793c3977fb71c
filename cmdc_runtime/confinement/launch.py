"""Confines itself and becomes a program: what stands before each command and server of a sandbox.

It is run as a script, with nothing but the standard library, so that it is there in some 30 ms; its
arguments are what is to be done (``all`` layers, ``separate`` for those before ``bwrap``, ``close``
for those in it), a ``Confinement`` as JSON, and the program with its arguments. What can't be
confined is not run: the exit status is 126, and what is missing stands in the output.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # typing's own costs each command 6 ms
if TYPE_CHECKING:
    from typing import Any

EXIT_NOT_STARTED = 126
"""As a shell says it of a program that it can't run."""


def main() -> None:
    """Confine this process and become the program, or write why not and end."""
    # The package itself loads what a command has no use for.
    package = type(sys)("cmdc_runtime")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]  # noqa: PTH100, PTH120
    sys.modules["cmdc_runtime"] = package
    from cmdc_runtime.confinement import apply  # noqa: PLC0415
    from cmdc_runtime.confinement.layer import Confinement, LayerMissing  # noqa: PLC0415

    what, text, *program = sys.argv[1:]
    parts = {"all": apply.confine, "separate": apply.separate, "close": apply.close_up}
    given: dict[str, Any] = {  # Any: as their fields are
        name: tuple(value) if isinstance(value, list) else value
        for name, value in json.loads(text).items()
    }
    try:
        parts[what](Confinement(**given))
        os.execvp(program[0], program)  # noqa: S606 - running what is asked for is its purpose
    except LayerMissing as error:
        problem = f"the sandbox can't be had: {error}"
    except OSError as error:
        problem = str(error)
    os.write(2, f"Cannot run the command: {problem}\n".encode())
    os._exit(EXIT_NOT_STARTED)


if __name__ == "__main__":
    main()
