"""One wheel and one environment for all tests of the folder."""

import pytest

from tests.e2e.first_hour.installed import Environment, build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this work tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory, wheel):
    """Make an environment with the wheel and with the dependencies that the tests have."""

    def make():
        made = Environment(tmp_path_factory.mktemp("venv") / "venv")
        made.share_dependencies()
        made.install(wheel)
        return made

    return make
