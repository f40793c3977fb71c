"""A client beside a daemon of a release before images: a real one that never heard of them."""

import subprocess
import sys

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing.daemon import DaemonProcess
from cmdc_runtime.transfer import FORMAT_FIRST, part_of, read_frames
from tests.e2e.command_line import command

pytestmark = pytest.mark.process

TURN_S = 20.0
OLDER = """
import runpy, typing
import msgspec
from cmdc_runtime import requests
from cmdc_runtime.wire import codec

unheard = {requests.KeepBlob, requests.GetBlob, requests.ListBlobs}
known = [kind for kind in requests.Request.__subclasses__() if kind not in unheard]
codec._decoders[requests.Request] = msgspec.msgpack.Decoder(typing.Union[tuple(known)])
runpy.run_module("supervisor", run_name="__main__", alter_sys=True)
"""


class OlderDaemon(DaemonProcess):
    """Knows no request about images."""

    def _spawn(self):
        with (self._base / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", OLDER],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@pytest.fixture(scope="module")
def older():
    """Such a daemon."""
    daemon = OlderDaemon()
    try:
        yield daemon
    finally:
        daemon.close()


def test_a_session_is_exported_without_images_and_sent_none(
    older, scripted, client, cmdc_daemon, tmp_path
):
    """It holds none, so its file is whole; a prompt with one says what is to be done."""
    model, file = scripted("One.", "Two."), tmp_path / "session"
    with cmdc.Client(older.address) as old, old.create_agent(model=model) as session:
        session.run("First.", timeout=TURN_S)
        with pytest.raises(cmdc.ProtocolError, match="takes no images and files: install the same"):
            session.prompt(["Look.", cmdc.Image(b"\x89PNG\r\n\x1a\n1")])
        command(older.address, "export", session.id, "-o", str(file))
    with file.open("rb") as opened:
        header = part_of(next(read_frames(opened)))
    command(cmdc_daemon.address, "import", str(file), "--as", "from-older")
    with cmdc.Session("from-older", client) as copy:
        answer = copy.run("Second.", timeout=TURN_S).text
        said = [one.content for one in copy.messages() if one.role != "system"]

    assert header.format == FORMAT_FIRST
    assert answer == "Two."
    assert said == ["First.", "One.", "Second.", "Two."]
