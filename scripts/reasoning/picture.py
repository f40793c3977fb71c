"""The picture of the measurements: curves of theory with their intervals, dots of what was found.

Needs the extra ``plot``. It checks the algorithms; no real model is in it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.reasoning import theory
from scripts.reasoning.measure import Measured

PANELS: Final = (
    (
        "Game of 24",
        (
            ("chain_of_thought", "tab:gray"),
            ("self_consistency", "tab:blue"),
            ("tree_of_thoughts", "tab:green"),
        ),
    ),
    ("Arithmetic, one wrong answer", (("self_consistency", "tab:blue"),)),
)
"""Title, and the strategies in it; the measurements of each panel come in its order."""


def draw(panels: Sequence[Sequence[Measured]], target: Path) -> None:
    """Write an SVG with a panel for each group of measurements."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "cmdc"  # the same picture has the same bytes
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of what draws

    figure, places = plt.subplots(1, len(PANELS), figsize=(11, 4.5), sharey=True)
    for axes, (title, curves), found in zip(places, PANELS, panels, strict=True):
        for name, colour in curves:
            points = sorted(
                (one.error_rate, one.share, one.predicted, theory.interval(one.predicted, one.runs))
                for one in found
                if one.strategy == name
            )
            rates, shares, predicted, around = zip(*points, strict=True)
            low = [max(0, p - a) for p, a in zip(predicted, around, strict=True)]
            high = [min(1, p + a) for p, a in zip(predicted, around, strict=True)]
            axes.fill_between(rates, low, high, color=colour, alpha=0.15)
            axes.plot(rates, predicted, "-", color=colour, label=f"{name}, theory")
            axes.plot(rates, shares, "o", color=colour, label=f"{name}, played")
        axes.set_title(title)
        axes.set_xlabel("error rate of the scripted model, for each step")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
    places[0].set_ylabel("share of right answers")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
