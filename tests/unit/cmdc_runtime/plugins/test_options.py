"""A wrong option of a built-in plugin is reported where it is written, by plugin and option."""

import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions


@pytest.mark.parametrize(
    ("make", "problems"),
    [
        (
            lambda: plugins.HumanApproval(nope=1, timeout_ms="x"),
            [
                "'human_approval': there is no option 'nope'",
                "'human_approval': option 'timeout_ms'",
            ],
        ),
        (lambda: plugins.CostGuard(max_cost_usd=-1.0), ["'cost_guard': option 'max_cost_usd'"]),
        (lambda: plugins.OutputFilter(patterns=["("]), ["'output_filter': patterns[0]"]),
        (
            lambda: plugins.SecurityGuard(blocked_commands=["re:("]),
            ["'security_guard': blocked_commands has 're:('"],
        ),
        (
            lambda: plugins.HumanApproval(safe_commands=["re:("]),
            ["'human_approval': safe_commands has 're:('"],
        ),
        (lambda: plugins.OutputFilter(patterns=7), ["'output_filter': option 'patterns'"]),
    ],
    ids=["unknown and type", "bound", "regex", "phrase", "safe command", "no list"],
)
def test_a_wrong_option_is_reported_where_it_is_written(make, problems):
    """As one error of ours that names all of them."""
    with pytest.raises(InvalidOptions) as caught:
        make()

    assert len(caught.value.problems) == len(problems)
    for reported, problem in zip(caught.value.problems, problems, strict=True):
        assert reported.startswith(f"plugin {problem}")


def test_what_is_right_is_converted():
    """A list is as good as a tuple."""
    assert plugins.HumanApproval(tools=["a"]).require_approval_for == ("a",)
