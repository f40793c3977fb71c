"""The output filter: its options, what it takes out, what it reports, and when it ends a cycle."""

import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Abort, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse
from cmdc_runtime.extensions.plugin import filters_output
from cmdc_runtime.messages import Message
from workers.builtin.filtering import UndecidedError
from workers.builtin.plugins.output_filter import OutputFilter

CONTEXT = PluginContext(session_id="s-1")
WITHHELD = Abort("the answer held what must not be shown; the rest was withheld")
UNFILTERED = Abort("the answer holds what must not be shown, and came unfiltered")


def said(plugin, *pieces, channel="text", context=CONTEXT):
    """Return what is shown of an answer that comes in these pieces; each has its own context."""
    one = plugin.filter_output(channel, context)
    return "".join([*map(one.feed, pieces), one.close()])


def completed(plugin, content="", thinking=None):
    """Return what is said to a complete answer."""
    return plugin.after_response(
        AfterResponse(Message.assistant(content, thinking=thinking)), CONTEXT
    )


def reported(action, **channels):
    return Emit(
        "output_filtered",
        {"action": action, "count": sum(channels.values()), "channels": channels},
    )


def test_defaults():
    """Without rules there is nothing to filter."""
    plugin = OutputFilter()

    assert plugin.config == plugins.OutputFilter()
    assert (plugin.config.replacement, plugin.config.action) == ("[filtered]", "replace")
    assert (plugin.config.held_chars_max, plugin.config.match_timeout) == (100_000, 0.25)
    assert filters_output(plugin)
    assert plugin.filter_output("text", CONTEXT) is None
    assert completed(plugin, "anything") == []


def test_matches_are_replaced_while_they_stream():
    """Each by the same text; what was taken out is counted, and reported behind the answer."""
    plugin = OutputFilter(patterns=[r"\b\d{3}-\d{2}-\d{4}\b"], keywords=["Falcon"], replacement="#")
    text = said(plugin, "fal", "con: 123-4", "5-6789, FALCON")
    thought = said(plugin, "hm, fal", "con", channel="thinking")

    assert (text, thought) == ("#: #, #", "hm, #")
    assert completed(plugin, text, thought) == [reported("replace", text=3, thinking=1)]
    assert completed(plugin, text, thought) == []


def test_answers_are_counted_apart():
    """A new filter begins at nothing; one whose answer never came is forgotten."""
    plugin = OutputFilter(keywords=["no"])
    said(plugin, "no no no")
    later = PluginContext(session_id="s-1")
    said(plugin, "no", context=later)
    said(plugin, "no", context=later)  # in a tag of the same answer

    assert completed(plugin) == [reported("replace", text=2)]
    said(plugin, "yes")
    assert completed(plugin, "yes") == []


def test_abort_withholds_the_rest_and_ends_the_cycle():
    """Nothing from the match on is shown, in neither channel."""
    plugin = OutputFilter(keywords=["no"], action="abort")
    text = said(plugin, "yes, n", "o, and more")
    thought = said(plugin, "no!", channel="thinking")

    assert (text, thought) == ("yes, ", "")
    assert completed(plugin, text, thought) == [reported("abort", text=1, thinking=1), WITHHELD]
    assert completed(plugin, "yes") == []


@pytest.mark.parametrize("action", ["replace", "abort"])
@pytest.mark.parametrize("message", [("a secret", None), ("", "a secret")])
def test_a_match_in_the_complete_answer_ends_the_cycle(action, message):
    """It came past the filter, as an answer that was not streamed does."""
    plugin = OutputFilter(keywords=["secret"], action=action)

    assert completed(plugin, *message) == [UNFILTERED]


def test_replacements_are_not_taken_for_matches():
    """Nor is what stands beside one: it was looked at with what was there before."""
    plugin = OutputFilter(keywords=["filter"], patterns=[r"a(?!x)", r"x", r"\[f.*"])
    text = said(plugin, "filter ax")

    assert text == "[filtered] a[filtered]"
    assert completed(plugin, text) == [reported("replace", text=2)]


@pytest.mark.parametrize(
    ("keyword", "text", "shown"),
    [
        ("Secret", "sEcReT secrets", "# #s"),
        ("top  secret", "TOP\n\tsecret", "#"),
        ("C++", "c++ c+", "# c+"),
        ("a.b", "a.b axb", "# axb"),
        ("*a*", "*A* a", "# a"),
        ("***", "a *** b", "a # b"),
        ("_x", "x _X", "x #"),
        ("\u200b", "a\u200bb", "a#b"),
        ("naïve", "naive na\u0131ve", "# #"),
        ("сор", "сор сОр cop", "# # cop"),  # noqa: RUF001 - Cyrillic letters
        ("cop", "сор cор", "сор #"),  # noqa: RUF001 - Cyrillic letters
        ("机密", "这是机密文件", "这是#文件"),
    ],
)
def test_keywords_are_words_of_a_reader(keyword, text, shown):
    """Signs with a meaning in patterns have none; those of a keyword of marks count."""
    assert said(OutputFilter(keywords=[keyword], replacement="#"), *text) == shown


def test_keywords_that_overlap_are_one():
    """Also where one begins inside another one, or holds it."""
    plugin = OutputFilter(keywords=["ab", "bcd", "c", "dx"], replacement="#")

    assert said(plugin, "abcdx", " abcd", " c") == "# # #"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"patterns": ["ok", "("]}, r"patterns\[1\] '\(': it is no regular expression: missing \)"),
        (
            {"patterns": [r"\Kx", "a*"]},
            r"patterns\[0\].*lookbehind; patterns\[1\] 'a\*': it matches",
        ),
        ({"patterns": [""]}, "option 'patterns': .*length >= 1"),
        ({"patterns": ["a"] * 201}, "option 'patterns': .*length <= 200"),
        ({"patterns": ["a" * 4097]}, "option 'patterns': .*length <= 4096"),
        ({"patterns": "abc"}, "option 'patterns': Expected `array`"),
        ({"keywords": [""]}, "option 'keywords': .*length >= 1"),
        ({"keywords": ["a" * 201]}, "option 'keywords': .*length <= 200"),
        ({"keywords": ["a"] * 1001}, "option 'keywords': .*length <= 1000"),
        ({"replacement": ""}, "option 'replacement': .*length >= 1"),
        ({"action": "drop"}, "option 'action': Invalid enum value 'drop'"),
        ({"held_chars_max": 0}, "option 'held_chars_max': .*>= 1"),
        ({"match_timeout": 6}, "option 'match_timeout': .*<= 5"),
        ({"word": 1}, "there is no option 'word'"),
    ],
)
def test_bad_options_are_refused(options, problem):
    """With the option and what is wrong with it."""
    with pytest.raises(InvalidOptions, match=problem):
        OutputFilter(**options)


def test_bad_patterns_are_refused_where_they_are_given():
    """Before a session is asked for."""
    with pytest.raises(InvalidOptions, match=r"patterns\[0\] '\[': it is no regular expression"):
        plugins.OutputFilter(patterns=["["])


def test_bounds_are_those_of_the_options():
    """A filter that cannot decide within them fails, and its plugin fails closed."""
    long = OutputFilter(patterns=["(?s)a.*b"], held_chars_max=3)
    slow = OutputFilter(patterns=["(?:a|aa)+c"], match_timeout=0.01)

    assert long.fail == slow.fail == "closed"
    with pytest.raises(UndecidedError, match="more than 3"):
        said(long, "aaaa")
    with pytest.raises(UndecidedError, match=r"patterns\[0\] took longer than 0.01 s"):
        said(slow, "a" * 100)
    with pytest.raises(UndecidedError, match=r"took longer than 0.01 s"):
        completed(slow, "a" * 100)
