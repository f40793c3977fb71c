"""What ``Runner.run`` refuses before anything is started."""

import pytest

from cmdc_runtime.client.run_request import RunRequest
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.options import Options


@pytest.mark.parametrize("kind", [dict, Options])
def test_a_strategy_among_the_options_is_refused(kind):
    """The one that is to run would take its place without a word."""
    options = kind(model="openai:x", reasoning_strategy="adaptive")
    with pytest.raises(InvalidOptions) as caught:
        RunRequest("self_consistency", {"options": options})

    assert caught.value.problems == (
        "options: reasoning_strategy: it would never run: give it as the strategy",
    )
