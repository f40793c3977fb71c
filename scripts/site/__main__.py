"""``python -m scripts.site``: build the site strictly, into ``build/site``.

A page that is linked and not there, an anchor that no page has, a name of the reference that the
source lacks, and an asset that a browser would fetch from elsewhere fail the build. Nothing is
asked of a network.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import yaml

from scripts.site import api
from scripts.site.staging import HOME, Staging, navigation

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "build" / "site-source"
SITE: Final = ROOT / "build" / "site"
SETTINGS: Final = Path(__file__).with_name("mkdocs.yml")
BUILD_S: Final = 600.0
FETCHED: Final = re.compile(
    r"""<(?:script|link|img)\b[^>]*\b(?:src|href)=["']?(https?:)?//[^"' >]+"""
)


def main() -> int:
    """Build; return the exit status."""
    start = time.monotonic()
    pages = Staging(ROOT, SOURCE).fill()
    pages += api.write(SOURCE)
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    settings |= {"docs_dir": str(SOURCE), "site_dir": str(SITE), "nav": navigation(pages)}
    written = SOURCE.with_name("mkdocs.yml")
    written.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(  # noqa: S603 - our own interpreter and file
        [*command, "--config-file", str(written)], check=False, timeout=BUILD_S, env=environment
    )
    if done.returncode:
        return done.returncode
    foreign = fetched(SITE)
    sys.stdout.write("".join(f"{one}\n" for one in foreign))
    took_s = time.monotonic() - start
    sys.stdout.write(f"{len(pages)} pages from {HOME} on, in {took_s:.0f} s: {SITE}\n")
    return 1 if foreign else 0


def fetched(site: Path) -> list[str]:
    """Return what a browser would fetch from elsewhere, with the page that asks for it."""
    return [
        f"{path.relative_to(site)}: {found[0]}"
        for path in sorted(site.rglob("*.html"))
        for found in FETCHED.finditer(path.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in found[0]
    ]


if __name__ == "__main__":
    sys.exit(main())
