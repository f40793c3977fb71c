"""The list of proofs by hand in ``CONTRIBUTING.md``, between two markers, from their records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.proofs.ledger import ALIKE, NEVER, Proof, Run, newest, notes, proofs
from scripts.reference import markdown

CONTRIBUTING: Final = Path(__file__).parents[2] / "CONTRIBUTING.md"
_HEAD: Final = ("command", "what it shows", "last green run", "size", "took", "its last line")


def page() -> str:
    """Return ``CONTRIBUTING.md`` with the list of today."""
    noted = notes()
    rows = (_row(name, proof, noted) for name, proof in proofs().items())
    return markdown.with_part(CONTRIBUTING, "proofs", markdown.table(_HEAD, rows))


def _row(name: str, proof: Proof, noted: Mapping[str, str]) -> tuple[str, ...]:
    row = (f"`{proof.command}`", proof.shows)
    last, green = newest(name), newest(name, is_green=True)
    if last is None:
        return (*row, f"never. {noted.get(NEVER.format(name), '')}", "", "", "")
    code = proof.digest()
    alike = noted.get(ALIKE.format(name, code), "") if last.code != code else ""
    alike = f"changed since: {alike}" if alike else ""
    red = f"**red ({last.status})** {_when(last)}: {last.said}" if last.status else ""
    if green is None:
        return (*row, f"never; {red}", "", "", "")
    when = "; ".join(filter(None, (_when(green), red, alike)))
    size = f"{green.size:,}" if green.size else ""
    return (*row, when, size, f"{green.seconds / 60:.0f} min", green.said)


def _when(run: Run) -> str:
    return f"{run.at.partition('T')[0]}, `{run.commit}`, load before {run.load_before:g}"
