"""One contract over all memory stores; what a store promises besides stands beside its module."""

import concurrent.futures
import re
import subprocess
import sys

import pytest

from cmdc_runtime import stores
from cmdc_runtime.extensions.memory import (
    CONTENT_CHARS_MAX,
    LIMIT_MAX,
    NAME_CHARS_MAX,
    TEXT_CHARS_MAX,
    Memory,
    MemoryStore,
)
from workers.builtin.stores.in_memory import InMemoryStore
from workers.builtin.stores.opening import opened

FILES = {"sqlite": stores.Sqlite, "vector": stores.Vector}
NAMESPACE = "user:ada"
PROCESSES = 3
EACH = 15
WRITER = """
import sys
from cmdc_runtime import stores
from workers.builtin.stores.opening import opened

store = opened(getattr(stores, sys.argv[1])(path=sys.argv[2]))
for number in range({each}):
    store.store(f"{{sys.argv[3]}}-{{number}}", {{"content": "from " + sys.argv[3]}}, namespace="n")
    store.store("both", {{"content": "the last one wins"}}, namespace="n")
    store.search("from", namespace="n")
"""


@pytest.fixture(params=["in_memory", *FILES])
def store(request, tmp_path):
    """Each store, new and empty."""
    if request.param == "in_memory":
        return InMemoryStore()
    return opened(FILES[request.param](path=str(tmp_path / "below" / "memory.db")))


def ids(memories):
    return [memory.id for memory in memories]


def fill(store, namespace=NAMESPACE, **contents):
    for id_, content in contents.items():
        store.store(id_, {"content": content}, namespace=namespace)


def test_it_is_a_store(store):
    """Each is of the public class."""
    assert isinstance(store, MemoryStore)


def test_what_is_stored_comes_back(store):
    """With its data, its id and the time; what the caller does to either side stays his own."""
    data = {"content": "tea at five", "tags": ["a", {"b": None}], "size": 1.5, "is_big": True}
    stored = store.store("m-1", data, namespace=NAMESPACE)
    data["tags"].append("later")
    [found] = store.list(namespace=NAMESPACE)
    found.data["tags"].clear()
    [again] = store.list(namespace=NAMESPACE)

    assert stored == again
    assert again == Memory(
        id="m-1",
        data={"content": "tea at five", "tags": ["a", {"b": None}], "size": 1.5, "is_big": True},
        inserted_at_ms=stored.inserted_at_ms,
    )
    assert again.content == "tea at five"
    assert again.inserted_at_ms > 1_600_000_000_000


def test_list_is_newest_first(store):
    """Or oldest first; no more than asked for."""
    fill(store, a="one", b="two", c="three")

    assert ids(store.list(namespace=NAMESPACE)) == ["c", "b", "a"]
    assert ids(store.list(namespace=NAMESPACE, order="asc")) == ["a", "b", "c"]
    assert ids(store.list(namespace=NAMESPACE, limit=2)) == ["c", "b"]
    assert ids(store.list(namespace=NAMESPACE, limit=2, order="asc")) == ["a", "b"]


def test_an_id_is_there_once(store):
    """What is stored again takes the place of the old, everywhere, and is new."""
    fill(store, a="apples", b="bananas")
    fill(store, a="cherries")

    assert ids(store.list(namespace=NAMESPACE)) == ["a", "b"]
    assert ids(store.search("apples", namespace=NAMESPACE)) == []
    assert ids(store.search("cherries", namespace=NAMESPACE)) == ["a"]
    [nearest] = store.similarity_search("cherries", namespace=NAMESPACE, limit=1)
    assert nearest.id == "a"


def test_what_is_deleted_is_gone(store):
    """From every way to find it; deleting what is not there is fine."""
    fill(store, a="apples", b="bananas")
    store.delete("a", namespace=NAMESPACE)
    store.delete("a", namespace=NAMESPACE)
    store.delete("never", namespace="nowhere")

    assert ids(store.list(namespace=NAMESPACE)) == ["b"]
    assert ids(store.search("apples", namespace=NAMESPACE)) == []
    assert "a" not in ids(store.similarity_search("apples", namespace=NAMESPACE))


def test_namespaces_know_nothing_of_each_other(store):
    """The same id is another memory elsewhere, and no way to find leads there."""
    fill(store, a="apples of ada")
    fill(store, "user:bob", a="apples of bob", b="apples too")
    fill(store, "user:ada\0", b="apples of nobody")
    store.delete("b", namespace=NAMESPACE)

    for found in (
        store.list(namespace=NAMESPACE),
        store.search("apples", namespace=NAMESPACE),
        store.similarity_search("apples", namespace=NAMESPACE),
    ):
        assert [memory.content for memory in found] == ["apples of ada"]
    assert len(store.list(namespace="user:bob")) == 2
    assert store.list(namespace="empty") == ()


SEARCHES = [
    ("parser", {"a", "b"}),
    ("PARSER", {"a", "b"}),
    ("bug parser", {"b"}),
    ("parser, bug!", {"b"}),
    ("straße", {"c"}),
    ("STRASSE", {"c"}),
    ("Ｐａｒｓｅｒ", {"a", "b"}),  # noqa: RUF001 - letters of full width
    ("执行", {"d"}),
    ("行执", set()),
    ("代码 测试", {"d"}),
    ("ที่พัก", {"e"}),
    ("ริมทะเล", {"e"}),
    ("ทะเลริม", set()),
    ("nothing", set()),
    ("parser nothing", set()),
    ("", set()),
    ("?!", set()),
]


def test_search_wants_every_word(store):
    """In any case and order, whatever stands between; unspaced scripts by their characters."""
    fill(
        store,
        a="Write a parser",
        b="Fix the parser: a bug",
        c="Die Straße",
        d="请执行代码，然后测试",  # noqa: RUF001 - a comma of full width
        e="หาที่พักริมทะเลให้หน่อย",
    )
    found = {text: set(ids(store.search(text, namespace=NAMESPACE))) for text, _ in SEARCHES}

    assert found == dict(SEARCHES)


SIGNS = [
        '"', '""', "a OR b", "apples OR pears", "NOT apples", "apples*", "space : x", "^apples",
        "apples NEAR(x, y)", "(apples", "apples)", "-apples", "{words} : apples", "apples + pears",
        "'; DROP TABLE memories; --", "apples AND", "\0apples", "\ud800 apples", "%", "_",
        "apples " * 400,
]  # fmt: skip


def test_a_text_is_no_language(store):
    """No sign in it is an operator and none is an error: words are looked for, OR too."""
    fill(store, a="apples", b="or")
    found = {text: ids(store.search(text, namespace=NAMESPACE)) for text in SIGNS}
    alike = {text: ids(store.similarity_search(text, namespace=NAMESPACE)) for text in SIGNS}

    only_words = (
        "apples*",
        "^apples",
        "(apples",
        "apples)",
        "-apples",
        "\0apples",
        "\ud800 apples",
    )
    assert {text for text in SIGNS if found[text]} == {*only_words, "apples " * 400}
    assert all("a" in alike[text] for text in SIGNS if "apples" in text)
    assert len(store.list(namespace=NAMESPACE)) == 2


def test_content_is_no_language_either(store):
    """Whatever a text holds, it is kept as it is, and found."""
    strange = "'\"; DROP TABLE memories; -- \0 % _ NEAR( \U0001f600"
    fill(store, a=strange)

    assert [one.content for one in store.search("drop near", namespace=NAMESPACE)] == [strange]


def test_what_is_most_alike_comes_first(store):
    """By what texts have in common; each has a score, the best first."""
    fill(
        store,
        tea="brew green tea in a pot",
        parser="write a parser for dates in rust",
        bread="bake bread with rye",
    )
    found = store.similarity_search("a parser for dates in python", namespace=NAMESPACE)
    scores = [memory.score for memory in found]

    assert found[0].id == "parser"
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0
    [best] = store.similarity_search("rye bread", namespace=NAMESPACE, limit=1)
    assert best.id == "bread"


def test_unspaced_scripts_are_alike_by_neighbours(store):
    """Characters that stand together count."""
    fill(store, a="请帮我写一个解析器", b="今天天气很好")

    assert ids(store.similarity_search("写解析器", namespace=NAMESPACE))[0] == "a"


def test_nothing_is_like_no_words(store):
    """A text without words finds nothing; one that was stored is found by its age."""
    fill(store, a="?!", b="words")

    for text in ("", " ", "?!", "\0"):
        assert store.similarity_search(text, namespace=NAMESPACE) == ()
    assert ids(store.list(namespace=NAMESPACE)) == ["b", "a"]


def test_filters_are_equal_values(store):
    """Every key must have the value, of the same kind; they hold before the limit does."""
    for number in range(8):
        store.store(
            f"m{number}",
            {"content": "apples", "is_odd": bool(number % 2), "number": number, "note": None},
            namespace=NAMESPACE,
        )
    store.store("plain", {"content": "apples"}, namespace=NAMESPACE)
    odd = {"is_odd": True}

    for found in (
        store.list(namespace=NAMESPACE, limit=3, filters=odd),
        store.search("apples", namespace=NAMESPACE, limit=3, filters=odd),
        store.similarity_search("apples", namespace=NAMESPACE, limit=3, filters=odd),
    ):
        assert ids(found) == ["m7", "m5", "m3"]
    assert ids(store.list(namespace=NAMESPACE, filters={"number": 2, "is_odd": False})) == ["m2"]
    assert ids(store.list(namespace=NAMESPACE, filters={"number": True})) == []
    assert len(store.list(namespace=NAMESPACE, filters={"note": None})) == 8
    assert ids(store.list(namespace=NAMESPACE, filters={"content": "pears"})) == []
    assert len(store.list(namespace=NAMESPACE, filters={})) == 9


LONG = "x" * (NAME_CHARS_MAX + 1)


BAD = [
    (lambda s: s.store("", {"content": ""}, namespace="n"), "id must be a text of 1 to 256"),
    (lambda s: s.store(LONG, {"content": ""}, namespace="n"), "characters, got one of 257"),
    (lambda s: s.store(7, {"content": ""}, namespace="n"), "got 7"),
    (lambda s: s.store("\ud800", {"content": ""}, namespace="n"), "id must be a text"),
    (lambda s: s.store("a", {"content": ""}, namespace=""), "namespace must be a text"),
    (lambda s: s.store("a", {}, namespace="n"), "as 'content', got None"),
    (lambda s: s.store("a", {"content": 5}, namespace="n"), "as 'content', got 5"),
    (
        lambda s: s.store("a", {"content": "x" * (CONTENT_CHARS_MAX + 1)}, namespace="n"),
        "got one of 100001",
    ),
    (
        lambda s: s.store("a", {"content": "", "it": object()}, namespace="n"),
        "data must be what JSON takes",
    ),
    (lambda s: s.store("a", {"content": "\ud800"}, namespace="n"), "what JSON takes"),
    (lambda s: s.store("a", {"content": "", "x": "y" * 2**20}, namespace="n"), "more than"),
    (lambda s: s.search("x" * (TEXT_CHARS_MAX + 1), namespace="n"), "at most 100000"),
    (lambda s: s.similarity_search(None, namespace="n"), "the text to look for"),
    (lambda s: s.search("x", namespace=""), "namespace must be"),
    (lambda s: s.similarity_search("x", namespace=""), "namespace must be"),
    (lambda s: s.list(namespace=""), "namespace must be"),
    (lambda s: s.delete("", namespace="n"), "id must be"),
    (lambda s: s.delete("a", namespace=""), "namespace must be"),
    (lambda s: s.search("x", namespace="n", limit=0), "limit must be 1 to 10000, got 0"),
    (lambda s: s.similarity_search("x", namespace="n", limit=True), "got True"),
    (lambda s: s.list(namespace="n", limit=LIMIT_MAX + 1), "got 10001"),
    (lambda s: s.list(namespace="n", order="best"), "order must be"),
]


def test_what_no_store_takes_is_refused(store):
    """The error names the thing, its value and what would have been right; nothing is stored."""
    for call, message in BAD:
        with pytest.raises(ValueError, match=re.escape(message)):
            call(store)

    assert store.list(namespace="n") == ()


def test_threads_may_use_one_store(store):
    """What several threads store at the same time is all there."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number in range(24):
            pool.submit(store.store, f"m{number}", {"content": "apples"}, namespace=NAMESPACE)

    assert len(store.list(namespace=NAMESPACE, limit=100)) == 24
    assert len(store.search("apples", namespace=NAMESPACE, limit=100)) == 24


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Sqlite", "Vector"])
def test_processes_may_share_a_file(tmp_path, kind):
    """All of them begin with no file at all, and each sees what all have stored."""
    path = str(tmp_path / "shared.db")
    command = [sys.executable, "-c", WRITER.format(each=EACH), kind, path]
    writers = [
        subprocess.Popen([*command, f"p{number}"], stderr=subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    said = [writer.communicate(timeout=60)[1].decode() for writer in writers]
    store = opened(getattr(stores, kind)(path=path))

    assert said == [""] * PROCESSES
    assert len(store.list(namespace="n", limit=100)) == PROCESSES * EACH + 1
    assert len(store.search("from p1", namespace="n", limit=100)) == EACH
