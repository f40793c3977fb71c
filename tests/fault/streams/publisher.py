"""A station in a process of its own: publishes as many events as standard input asks for."""

import contextlib
import json
import sys
from pathlib import Path

from tests.fault.streams.station import Station

GROUP = 500


def main():
    """Answer each number with itself when so many events are out."""
    directory, chars = Path(sys.argv[1]), int(sys.argv[2])
    with contextlib.closing(Station(directory)) as station:
        station.add("s1", events_max=10)
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            left = int(line)
            while left > 0:
                station.publish(["s1"] * min(left, GROUP), text="x" * chars)
                left -= GROUP
            print(int(line), flush=True)


if __name__ == "__main__":
    main()
