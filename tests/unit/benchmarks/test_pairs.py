"""What plays of two revisions come to: ratios within pairs, and what cannot be compared by name."""

from benchmarks.metrics import measured
from benchmarks.pairs import Paired, compare, table


def play(unit="ms", **values):
    return {name: measured(name, unit, [value]) for name, value in values.items()}


def test_a_ratio_is_taken_within_each_pair():
    """A machine that was slow for one pair was slow for both plays of it."""
    pairs = [
        (play(start=10), play(start=11)),
        (play(start=40), play(start=20)),
        (play(start=10), play(start=9)),
    ]
    found = compare(pairs)

    assert found.left_out == []
    assert found.metrics == [
        Paired(
            metric="start",
            value=11,
            unit="ms",
            baseline=10,
            ratio=0.9,
            ratio_min=0.5,
            ratio_max=1.1,
            n=3,
            p50=11,
            p99=20,
        )
    ]


def test_of_two_pairs_the_ratio_lies_in_the_middle():
    """Neither of them is preferred."""
    [found] = compare([(play(x=10), play(x=5)), (play(x=10), play(x=20))]).metrics

    assert (found.ratio_min, found.ratio, found.ratio_max) == (0.5, 1.25, 2.0)
    assert (found.baseline, found.value) == (10, 12.5)


def test_nothing_has_a_ratio_to_nothing():
    """As what was lost, which should be 0 on both sides."""
    [found] = compare([(play(lost=0), play(lost=3))]).metrics

    assert (found.baseline, found.value) == (0, 3)
    assert (found.ratio, found.ratio_min, found.ratio_max) == (None, None, None)


def test_a_pair_without_a_ratio_leaves_those_of_the_others():
    """Its values count."""
    [found] = compare([(play(x=0), play(x=3)), (play(x=2), play(x=3))]).metrics

    assert (found.ratio, found.ratio_min, found.ratio_max, found.n) == (1.5, 1.5, 1.5, 2)


def test_a_metric_that_one_revision_lacks_is_named():
    """It is left out, in whatever order it was reported."""
    found = compare([(play(a=1, gone=1), play(a=1, new=1))] * 2)

    assert [one.metric for one in found.metrics] == ["a"]
    assert found.left_out == [
        "new is not measured by the old revision",
        "gone is not measured by the new revision",
    ]


def test_a_metric_that_is_reported_now_and_then_counts_where_both_report_it():
    """And is named where no pair has it whole."""
    found = compare([(play(a=1, b=1), play(a=2)), (play(), play(a=3, b=1))])

    assert [(one.metric, one.n, one.ratio) for one in found.metrics] == [("a", 1, 2)]
    assert found.left_out == ["b is not measured by both revisions in any pair"]


def test_two_units_are_not_compared():
    """Milliseconds through seconds is a thousandth of nothing."""
    found = compare([(play("s", a=1), play("ms", a=1000))])

    assert found.metrics == []
    assert found.left_out == ["a is measured in different units: ms, s"]


def test_the_table_has_a_line_for_each_metric():
    """Aligned, with an empty place where there is no ratio."""
    pairs = [(play(lost=0, start=10), play(lost=0, start=12))]

    assert table(compare(pairs).metrics).splitlines() == [
        "metric  unit  old  new  ratio  ratio min  ratio max  n",
        "lost    ms    0    0                                 1",
        "start   ms    10   12   1.2    1.2        1.2        1",
    ]
