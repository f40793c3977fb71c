"""How property tests run: at random where a person looks for bugs, the same way always in CI.

A run on the build machine must fail for a change and never for a draw; branch coverage of a
random run varies too. No deadline: a machine that is busy is not a bug.
"""

import os

from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")
