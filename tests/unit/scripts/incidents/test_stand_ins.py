"""What differs from run to run reads the same, and what means something stays."""

import pytest

from scripts.incidents.stand_ins import StandIns

PS = """\
SESSION  STATE  PID     MODEL            TURNS  QUEUED  TOKENS  COST  RESTARTS  UP
reader   idle   {pid:<6}  openai/scripted  1      0       {tokens:<6}  -     1         {up}
"""


def put(*texts, paths=None):
    stand_ins = StandIns(paths or {})
    return [stand_ins.put(text) for text in texts]


def test_two_runs_read_the_same():
    """Times, pids, addresses, sizes and ages are stand-ins."""
    line = (
        "{at} [info     ] process.ended pid={pid}\n"
        "    it lived for {age}, its last event is {index}\n"
        "    {size} resident at most, CPU {cpu} user, 0 ms system\n"
        "    | Current thread {address} (most recent call first):"
    )
    first = line.format(
        at="2026-01-02T03:04:05.678901Z",
        pid=77,
        age="340 ms",
        index=9,
        size="224 MiB",
        cpu="8 ms",
        address="0x00007f00b3fff6c0",
    )
    second = line.format(
        at="2027-11-12T13:14:15.123456Z",
        pid=31337,
        age="2.1 s",
        index=1000007,
        size="1.5 GiB",
        cpu="1.2 s",
        address="0x00007fffffffffff",
    )

    assert put(first) == put(second)


def test_a_process_has_one_pid():
    """In all that is shown of an incident, tables included."""
    texts = (
        "process 1 of reader (pid 900) is down",
        PS.format(pid=901, tokens=836, up="3.1 s"),
        "pid=901 pid=900",
    )
    shown, table, log = put(*texts)

    assert (shown, log) == ("process 1 of reader (pid 4001) is down", "pid=4002 pid=4001")
    assert table.splitlines()[1].split()[2] == "4002"


def test_a_table_does_not_show_how_wide_it_was():
    """Its columns are as wide as what stands in them now."""
    narrow, wide = (
        put(PS.format(pid=7, tokens=1, up="340 ms")),
        put(PS.format(pid=123456, tokens=123456, up="3 min 20 s")),
    )

    assert narrow == wide
    assert put(PS.format(pid="-", tokens=0, up="0 ms"))[0].splitlines()[1].split()[2] == "-"


@pytest.mark.parametrize(
    "text",
    [
        "killed by signal 9 (SIGKILL), from outside; restarting in 100 ms as process 2 (restart 1)",
        "out of memory: 128 MiB resident, limit 128 MiB",
        "all its processes together 128 MiB at most, the kernel killed 1 of them",
        "3 restarts in 5 s were not enough; last: exit status 3",
        "provider of openai/scripted silent for 0.5 s",
        "it published nothing",
    ],
)
def test_what_means_something_stays(text):
    """Limits, signals, statuses and counts are shown as they are."""
    assert put(text) == [text]


def test_the_longest_path_counts():
    """A file of the application is not the folder that it lies in."""
    paths = {"/tmp/x": "/run/cmdc", "/tmp/x/shop.py": "/srv/shop/shop.py"}

    assert put('File "/tmp/x/shop.py"', paths=paths) == ['File "/srv/shop/shop.py"']
