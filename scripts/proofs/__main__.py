"""``python -m scripts.proofs NAME [--size N] -- COMMAND``: run a proof and keep how it ended.

The output is shown as it comes; its last line is kept, with exit status, time and the digest of the
proof's code. A run below the size that counts, or one that is interrupted, leaves no record. The
exit status is the command's.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from typing import Final

from benchmarks.report import append
from scripts.proofs.ledger import SUBJECT, proofs

SAID_CHARS_MAX: Final = 300
INTERRUPTED: Final = 130


def main() -> int:
    """Run what the arguments say and return its exit status."""
    arguments = _arguments()
    proof = proofs()[arguments.name]
    load, begun_s = os.getloadavg()[0], time.monotonic()
    digest = proof.digest()
    status, said = _run(arguments.command)
    if status in {INTERRUPTED, -signal.SIGINT, -signal.SIGTERM}:
        return INTERRUPTED
    if arguments.size < proof.least:
        sys.stdout.write(f"no record: a run of {arguments.name} counts from {proof.least} on\n")
        return status
    found = {
        "proof": arguments.name,
        "size": arguments.size,
        "status": status,
        "seconds": round(time.monotonic() - begun_s, 1),
        "said": said,
        "code": digest,
    }
    append(SUBJECT, found, load)
    return status


def _run(command: list[str]) -> tuple[int, str]:
    """Return the exit status, and the last line that has been written."""
    said = ""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, errors="replace") as running:  # noqa: S603 - our own targets
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        try:
            for line in running.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                said = line.strip() or said
        except KeyboardInterrupt:  # the terminal has signalled the command, too
            running.wait()
            return INTERRUPTED, said
    return running.returncode, said.strip("= ")[:SAID_CHARS_MAX]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.proofs", description=__doc__)
    parser.add_argument("name", choices=sorted(proofs()))
    parser.add_argument("--size", type=int, default=0, help="how many inputs, lives, starts")
    parser.add_argument("command", nargs="+", help="behind --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
