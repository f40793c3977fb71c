"""A daemon that does not start because another one has what it needs."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

START_S = 60.0


def test_a_daemon_that_finds_its_journal_taken_says_why_and_no_more(cmdc_daemon, tmp_path):
    """It has not begun, so nothing reports its end; the reason is the last line."""
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "supervisor",
            "--state-dir",
            cmdc_daemon.state_dir,
            "--runtime-dir",
            tmp_path,
        ],
        env={**os.environ, "CMDC_ADDRESS": ""},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )

    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("cmdc serve: ")
    assert "daemon.stopped" not in done.stderr + done.stdout
