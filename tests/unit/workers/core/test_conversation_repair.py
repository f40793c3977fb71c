"""After a repair each tool call has one result, right after it."""

from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.messages import Message, ToolCall
from workers.core.conversation import NOT_RUN_TEXT, repair


def asks(*call_ids):
    calls = tuple(ToolCall(call_id=call_id, name=f"tool_{call_id}") for call_id in call_ids)
    return Message.assistant("", calls)


def result(call_id, output="ok"):
    return Message.tool_result(call_id, output)


def shape(messages):
    return [(m.role, m.call_id, m.content) for m in messages]


def test_a_whole_history_is_left_alone():
    """Results in call order right after their message need nothing."""
    history = (
        Message.user("go"),
        asks("a", "b"),
        result("a"),
        result("b"),
        Message.assistant("done"),
    )

    assert repair(history) == history


def test_a_missing_result_becomes_an_error_result():
    """The model learns that the call did not run; repairing again finds the same messages."""
    history = (asks("a", "b"), result("b"), Message.user("well?"))
    _, missing, *rest = repaired = repair(history)

    assert (missing.call_id, missing.name, missing.is_error) == ("a", "tool_a", True)
    assert missing.content == NOT_RUN_TEXT
    assert tuple(rest) == history[1:]
    assert repair(history) == repaired


def test_a_result_moves_to_its_call():
    """What came in between (a steering, another reply) comes after the results."""
    first, said, late = asks("a"), Message.user("also this"), result("a")

    assert repair((first, said, late)) == (first, late, said)


def test_results_come_in_call_order():
    """The order of a batch is the order in which the model asked."""
    ask, of_b, of_a = asks("a", "b"), result("b"), result("a")

    assert repair((ask, of_b, of_a)) == (ask, of_a, of_b)


def test_orphans_and_repeats_are_dropped():
    """A result without a call, one before its call, and a second one of a call all go."""
    ask, first = asks("a"), result("a", "first")
    history = (result("a", "too early"), ask, first, result("a", "again"), result("z"))

    assert repair(history) == (ask, first)


def test_a_call_made_twice_in_one_message_is_kept_once():
    """Providers refuse two calls of one id; the first counts."""
    first = ToolCall(call_id="a", name="one")
    twice = Message.assistant("x", (first, ToolCall(call_id="a", name="two")))
    kept, answer = repair((twice, result("a")))

    assert kept.tool_calls == (first,)
    assert (kept.id, kept.content, answer.content) == (twice.id, "x", "ok")


def test_ids_that_a_provider_uses_again_do_not_mix():
    """A result belongs to the latest earlier call of its id."""
    one, answer_one, two, answer_two = asks("0"), result("0", "1"), asks("0"), result("0", "2")

    assert repair((one, answer_one, two, answer_two)) == (one, answer_one, two, answer_two)
    assert shape(repair((one, two, answer_two)))[1] == ("tool_result", "0", NOT_RUN_TEXT)


ids = st.sampled_from("abcd")
messages = st.one_of(
    st.builds(Message.user, st.just("u")),
    st.builds(Message.assistant, st.just("said")),
    st.lists(ids, max_size=3).map(lambda call_ids: asks(*call_ids)),
    st.builds(result, ids),
)
histories = st.lists(messages, max_size=12).map(tuple)


@given(histories)
def test_every_call_has_exactly_one_result_right_after_it(history):
    """Counted over any history: as many results as calls, in their order, in their place."""
    at, repaired = 0, repair(history)
    while at < len(repaired):
        asked = [call.call_id for call in repaired[at].tool_calls]
        answers = repaired[at + 1 : at + 1 + len(asked)]

        assert repaired[at].role != "tool_result"
        assert [answer.call_id for answer in answers] == asked
        assert len(set(asked)) == len(asked)
        assert all(answer.role == "tool_result" for answer in answers)
        at += 1 + len(asked)


@given(histories)
def test_a_repair_is_final_and_loses_no_words(history):
    """Repairing twice is repairing once; all but results stays, in order."""
    repaired = repair(history)

    assert repair(repaired) == repaired
    assert [m.id for m in repaired if m.role != "tool_result"] == [
        m.id for m in history if m.role != "tool_result"
    ]
