"""The chain of text filters: order, what is kept back, and what a broken one costs."""

import pytest
from structlog.testing import capture_logs

from cmdc_runtime import foreign
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.extensions.provider import FinishChunk, TextChunk, ThinkingChunk, ToolCallChunk
from workers.core.tags import FoundTag, Tag
from workers.output_filters import FilterFailedError, OutputFilters, Shown

CONTEXT = PluginContext(session_id="s-1")
END = FinishChunk(reason="stop")


class Holding:
    """Keeps the last character back, and puts a mark behind what it lets through at the end."""

    shout = ValueError("a shout")

    def __init__(self, mark):
        self.mark, self.held = mark, ""

    def feed(self, text):
        if "!" in text:
            raise self.shout
        text, self.held = self.held + text[:-1], text[-1:]
        return text

    def close(self):
        return self.held + self.mark


def plugin(mark, fail="open", channels=("text",)):
    def filter_output(self, channel, context):
        if mark == "broken":
            raise RuntimeError("no filter")
        return Holding(mark) if channel in channels else None

    members = {"filter_output": filter_output, "fail": fail, "name": f"p{ord(mark[0])}"}
    return type("Filtering", (Plugin,), members)()


def chain(*plugins):
    crashes = []
    made = OutputFilters(plugins, CONTEXT, lambda name, why: crashes.append((name, why)))
    return made, crashes


def passed(made, *texts, kind=TextChunk):
    """Return what is shown of texts, and of the end."""
    chunks = [made.pass_on(kind(text=text)).chunks for text in texts]
    return [*chunks, made.pass_on(END).chunks]


def shown(chunks):
    return "".join(chunk.text for part in chunks for chunk in part if chunk is not END)


def test_each_filter_has_what_the_one_before_lets_through():
    """At the end the rest of one goes through those behind it, before they are closed."""
    made, crashes = chain(plugin("1"), plugin("2"))

    assert shown(passed(made, "ab", "cd")) == "abcd12"
    assert crashes == []


def test_what_is_kept_back_is_no_chunk():
    """An empty text is not shown."""
    made, _ = chain(plugin("1"))

    assert made.pass_on(TextChunk(text="a")) == Shown()
    assert made.pass_on(TextChunk(text="b")) == Shown((TextChunk(text="a"),))


def test_other_chunks_and_channels_pass():
    """A filter is for the channel that it was made for."""
    made, _ = chain(plugin("1"))
    call = ToolCallChunk(index=0, name="x")

    assert made.pass_on(call) == Shown((call,))
    assert made.pass_on(ThinkingChunk(text="hm")) == Shown((ThinkingChunk(text="hm"),))


def test_tags_are_taken_out_before_and_filtered_apart():
    """What stands around a tag comes together in front of the filter; its text is a whole."""
    made, _ = chain(plugin("1"))
    first = made.pass_on(TextChunk(text="ab<status>look"))
    second = made.pass_on(TextChunk(text="ing</status>cd"))

    assert (first, second) == (
        Shown((TextChunk(text="a"),)),
        Shown((TextChunk(text="bc"),), (FoundTag(Tag.STATUS, "looking1"),)),
    )


def test_a_filter_that_breaks_at_the_end_hides_none_behind_it():
    """The rest of one still goes through the next."""

    class Late(Holding):
        def close(self):
            raise ValueError("late")

    late = plugin("1")
    type(late).filter_output = lambda self, channel, context: Late("1")
    made, crashes = chain(plugin("0"), late, plugin("2"))
    with capture_logs():
        found = shown(passed(made, "abcd"))

    assert found == "abcd2"
    assert {why for _, why in crashes} == {"ValueError: late"}


def test_thoughts_have_filters_of_their_own():
    """Made apart from those of the text."""
    made, _ = chain(plugin("1", channels=("text", "thinking")))
    thought = passed(made, "ab", kind=ThinkingChunk)

    assert thought[0] == (ThinkingChunk(text="a"),)
    assert thought[1][0] == ThinkingChunk(text="b1")


def test_an_open_filter_that_breaks_is_left_out():
    """The text that broke them passes, and so does all that comes later."""
    made, crashes = chain(plugin("1"), plugin("2"))
    with capture_logs() as logs:
        found = shown(passed(made, "ab", "!", "cd"))

    assert found == "!cd"
    assert crashes == [("p49", "ValueError: a shout"), ("p50", "ValueError: a shout")]
    assert {entry["event"] for entry in logs} == {"plugin.crashed"}


@pytest.mark.parametrize("shout", [SystemExit("x"), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_filter_may_break_as_it_likes(shout, monkeypatch):
    """Its answer goes on without it."""
    monkeypatch.setattr(Holding, "shout", shout)
    made, crashes = chain(plugin("1"))
    with capture_logs():
        found = shown(passed(made, "ab", "!"))

    assert found == "a!"
    assert crashes == [("p49", foreign.summary_of(shout))]


@pytest.mark.parametrize("mark", ["1", "broken"])
def test_a_closed_filter_that_breaks_ends_the_answer(mark):
    """Nothing more may be shown, whether it breaks or cannot be made."""

    def use():
        made, _ = chain(plugin(mark, fail="closed"))
        made.pass_on(TextChunk(text="!"))

    with capture_logs(), pytest.raises(FilterFailedError, match="failed at filter_output"):
        use()


class Answering:
    """A filter that returns what it was made with."""

    def __init__(self, fed, closed=""):
        self.fed, self.closed = fed, closed

    def feed(self, text):
        return self.fed

    def close(self):
        return self.closed


@pytest.mark.parametrize("given", [None, 3, b"x", ["a"]], ids=repr)
@pytest.mark.parametrize("fail", ["open", "closed"])
def test_a_filter_that_returns_no_text_has_failed(fail, given):
    """What it returns is nobody's answer: not "None" either."""
    broken = plugin("1", fail)
    type(broken).filter_output = lambda self, channel, context: Answering(given)
    made, crashes = chain(broken)
    with capture_logs():
        if fail == "closed":
            with pytest.raises(FilterFailedError, match="feed and close return a str"):
                made.pass_on(TextChunk(text="ab"))
        else:
            assert shown(passed(made, "ab", "cd")) == "abcd"

    ((name, why),) = crashes
    assert name == "p49"
    assert why == f"TypeError: its filter returned {given!r}: feed and close return a str"


def test_a_filter_whose_end_is_no_text_has_failed():
    """What it let through before stays."""
    broken = plugin("1")
    type(broken).filter_output = lambda self, channel, context: Answering("ab", None)
    made, crashes = chain(broken)
    with capture_logs():
        assert shown(passed(made, "xy")) == "ab"

    assert {name for name, _ in crashes} == {"p49"}


class HalfAFilter:
    """Has no ``close``."""

    def feed(self, text):
        return text


@pytest.mark.parametrize("given", [3, HalfAFilter(), Answering], ids=["int", "half", "class"])
@pytest.mark.parametrize("fail", ["open", "closed"])
def test_what_is_no_filter_is_a_failure_of_its_plugin(fail, given):
    """It is said where it is returned, and by name."""
    broken = plugin("1", fail)
    type(broken).filter_output = lambda self, channel, context: given
    with capture_logs():
        if fail == "closed":
            with pytest.raises(FilterFailedError, match="p49 failed at filter_output: TypeError"):
                chain(broken)
            return
        made, crashes = chain(broken)
        found = shown(passed(made, "ab"))

    assert found == "ab"
    assert {name for name, _ in crashes} == {"p49"}
    assert all("an object with the methods feed and close" in why for _, why in crashes)


def test_a_plugin_that_is_to_be_disabled_makes_no_more_filters():
    """Not for a status of the same answer either."""
    broken = plugin("!", "disable")
    made, crashes = chain(broken)
    with capture_logs():
        shown(passed(made, "a!", "<status>b!</status>"))

    assert [name for name, _ in crashes] == ["p33"]
