"""What gets out of each sandbox: nothing out of those that confine, and the page says what else."""

import re

import pytest

from cmdc_runtime.confinement import namespaces
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.sandbox import SandboxPlace
from tests.escaping import LIBRARY, corpus, escaped, escaped_hosts, ground
from workers.builtin.sandboxes import bubblewrap, landlock, local

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

ATTEMPTS_MIN = 300
LAYERS = {
    *("landlock", "namespaces", "seccomp", "capabilities", "proxy", "commands", "tools", "agent"),
}
PAGE = LIBRARY / "docs/escapes.md"


def name_of(kind):
    return kind.__name__.rpartition(".")[2]


@pytest.mark.parametrize("is_server", [False, True], ids=["tool", "server"])
@pytest.mark.parametrize("kind", [landlock, bubblewrap], ids=name_of)
def test_nothing_escapes(kind, is_server, tmp_path):
    """Every attempt of a tool and of a server is stopped; what lies outside is as it was."""
    try:
        kind.create().begin(SandboxPlace(session_id="s", working_dir=str(tmp_path)))
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    with ground(tmp_path / "ground") as place:
        before = place.state()
        found = escaped(kind.create(), place, is_server=is_server)
        after = place.state()

    assert found == set()
    assert {path for path in after if after[path] != before.get(path)} == set()
    assert set(before) <= set(after)


@pytest.mark.parametrize("kind", [landlock, bubblewrap], ids=name_of)
def test_no_host_is_reached_but_those_that_are_named(kind, tmp_path):
    """Where the network is a proxy's: by no name, address, request or way round it."""
    try:
        kind.create().begin(SandboxPlace(session_id="s", working_dir=str(tmp_path)))
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))

    assert escaped_hosts(name_of(kind), tmp_path) == set()


def test_hosts_are_there_to_be_reached(tmp_path):
    """Without a proxy most attempts to reach another one do."""
    if why := namespaces.refusal():
        pytest.skip(why)
    found = escaped_hosts("local", tmp_path)
    reached = {"another one", "by a relay", "this machine by a name", "without the proxy"}

    assert {f"hosts: {name}" for name in reached} <= found
    assert len(found) > len([one for one in corpus() if one.kind == "hosts"]) // 2


def test_attempts_are_real(tmp_path):
    """Without a layer most of them get out; what the shield and the tools hold does not."""
    with ground(tmp_path / "ground") as place:
        found = escaped(local.create(), place)

    assert {"read: cat a file", "write: a new file", "orders: a hook", "sockets: TCP"} <= found
    assert "processes: environment of another" not in found
    assert not {one for one in found if one.startswith(("agent: ", "bombs: "))}
    assert not {one for one in found if one.startswith("tools: read")}


def test_the_corpus_names_a_layer_for_each():
    """And has as many as were asked for."""
    attempts = corpus()

    assert len(attempts) >= ATTEMPTS_MIN
    assert {one.layer for one in attempts} == LAYERS


def test_the_page_has_every_attempt():
    """With the result of each sandbox; ``python -m scripts.escapes`` writes it."""
    listed = re.findall(r"^\| (\w+: .+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert listed == [one.id for one in corpus()]
