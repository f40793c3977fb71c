"""The client: what is made of its async face is up to date, and no module imports itself."""

import grimp

from scripts import unasync


def test_what_is_made_is_what_the_async_client_says():
    """Whoever changes a call makes the sync face anew in the same change."""
    stale = [path.relative_to(unasync.ROOT) for path in unasync.stale()]

    assert stale == [], "run `make sync`"


def test_a_made_file_says_what_it_is_made_of():
    """In its first line; but for the module whose sessions' methods are made in their place."""
    made = unasync.made()
    del made[unasync.CLIENT / "session.py"]

    assert all(text.startswith("# Made by `make sync` of ") for text in made.values())


def test_what_is_made_runs_no_loop_and_no_thread_by_itself():
    """What differs between the two is in the pairs by hand, or there would be more to make."""
    sources = [(unasync.CLIENT / f"{name}.py").read_text(encoding="utf-8") for name in unasync.MADE]

    assert not [one for text in sources for one in ("asyncio", "threading") if one in text]


def test_no_module_of_the_package_imports_itself_in_the_end():
    """Also not for type checkers alone: what needs each other stands in one module."""
    graph = grimp.build_graph("cmdc_runtime", include_external_packages=False)
    cycles = {
        frozenset((name, other))
        for name in graph.modules
        for other in graph.find_modules_directly_imported_by(name)
        if graph.chain_exists(importer=other, imported=name)
    }

    assert cycles == set()
