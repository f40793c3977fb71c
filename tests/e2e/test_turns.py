"""Who goes first at the processor: the daemon and agents that are up, before what computes."""

import ctypes
import os
import platform
import struct
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.prctl import SLICE_S
from cmdc_runtime.testing import ToolCalls, ToolUse
from supervisor.entry import NICE_STEPS

TURN_S = 20.0
GETATTR = {"x86_64": 315, "aarch64": 275, "riscv64": 275}[platform.machine()]
ATTR = struct.Struct("=IIQiIQQQ")
SHORT_NS = round(SLICE_S * 1e9)


def turns(pid):
    """Return policy and slice in ns of all threads of a process, each once."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        given = ctypes.create_string_buffer(ATTR.size)
        if ctypes.CDLL(None).syscall(GETATTR, int(task.name), given, ATTR.size, 0):
            continue  # it has ended
        _, policy, _, _, _, slice_ns, _, _ = ATTR.unpack(given.raw)
        found.add((policy, slice_ns))
    return found


@cmdc.tool(effects="read", isolation="process")
def policy() -> int:
    """Return the policy by which a tool's process is scheduled."""
    return os.sched_getscheduler(0)


@pytest.fixture
def plain_ns():
    """The slice of a process that has asked for nothing; 0 before Linux 6.12, which has none."""
    ((_, slice_ns),) = turns(os.getpid())
    return slice_ns


def test_who_answers_goes_before_who_computes(cmdc_daemon, agent, scripted, plain_ns):
    """An agent from when it is up; what the zygote forks until then, and tools, yield."""
    session = agent(scripted(ToolCalls(ToolUse("policy", {})), "fine"), tools=[policy])
    session.run("1", timeout=TURN_S)
    (result,) = [one for one in session.messages() if one.role == "tool_result"]
    below = psutil.Process(cmdc_daemon.pid).children()

    short_ns = SHORT_NS if plain_ns else 0
    assert turns(cmdc_daemon.pid) == {(os.SCHED_OTHER, short_ns)}
    assert turns(session.agent_pid()) == {(os.SCHED_OTHER, short_ns)}
    zygotes = [one.pid for one in below if one.name() == "cmdc-zygote"]
    assert [turns(pid) for pid in zygotes] == [{(os.SCHED_BATCH, plain_ns)}] * len(zygotes)
    assert zygotes
    assert int(result.content) == os.SCHED_BATCH


def test_what_the_daemon_forks_is_as_nice_as_the_daemon_began(cmdc_daemon, agent, scripted):
    """The daemon alone takes steps, where it may: root may."""
    session = agent(scripted("fine"))
    session.run("1", timeout=TURN_S)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    of_daemon = own - NICE_STEPS if os.geteuid() == 0 else own

    assert os.getpriority(os.PRIO_PROCESS, cmdc_daemon.pid) == of_daemon
    assert os.getpriority(os.PRIO_PROCESS, session.agent_pid()) == own
