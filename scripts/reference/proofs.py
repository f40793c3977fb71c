"""The list of proofs by hand in ``CONTRIBUTING.md``, between two markers, from their records."""

from pathlib import Path
from typing import Final

from scripts.proofs.ledger import Proof, newest, proofs
from scripts.reference import markdown

CONTRIBUTING: Final = Path(__file__).parents[2] / "CONTRIBUTING.md"
_HEAD: Final = ("command", "what it shows", "last run", "took", "its last line")


def page() -> str:
    """Return ``CONTRIBUTING.md`` with the list of today."""
    rows = (_row(name, proof) for name, proof in proofs().items())
    return markdown.with_part(CONTRIBUTING, "proofs", markdown.table(_HEAD, rows))


def _row(name: str, proof: Proof) -> tuple[str, ...]:
    run = newest(name)
    told = (f"`{proof.command}`", proof.shows)
    if run is None:
        return (*told, "never", "", "")
    outcome = "green" if run.status == 0 else f"**red ({run.status})**"
    when = f"{run.at.partition('T')[0]}, `{run.commit}`: {outcome}"
    return (*told, when, f"{run.seconds / 60:.0f} min", run.said)
