"""Which rights a kernel knows, by its ABI."""

import pytest

from cmdc_runtime.confinement.landlock import (
    ABI_OF,
    EVERYTHING,
    Domain,
    Fs,
    Net,
    Scope,
    missing,
)

ABI_NEWEST = max(ABI_OF.values())


def test_each_right_has_the_abi_that_it_came_with():
    """The table is total: what has no row would be asked of every kernel."""
    assert set(ABI_OF) == {*Fs, *Net, *Scope}
    assert EVERYTHING.known(ABI_NEWEST) == EVERYTHING


@pytest.mark.parametrize("abi", range(1, ABI_NEWEST + 1))
def test_nothing_is_asked_that_a_kernel_does_not_know(abi):
    """And what is left out is said in words."""
    known = EVERYTHING.known(abi)

    assert all(
        ABI_OF[right] <= abi for part in (known.fs, known.net, known.scope) for right in part
    )
    lacks = {since for since in ABI_OF.values() if since > abi}
    assert len(missing(abi)) == len(lacks)


def test_without_landlock_there_is_nothing():
    """Which is said as well."""
    assert EVERYTHING.known(0) == Domain(Fs(0), Net(0), Scope(0))
    assert "no Landlock" in missing(0)[0]
