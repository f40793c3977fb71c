"""How the engine's chunks become the answer that a client expects."""

from cmdc_runtime.local_model.answers import Gathered, cleaned

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
CALL = '{"name": "add", "arguments": {"first": 1, "second": 2}}'


def gathered(text, finish="stop"):
    """Return an answer of two parts, as the engine gives it."""
    answer = Gathered()
    for part in (text[:5], text[5:]):
        choice = {"delta": {"content": part}, "finish_reason": None}
        answer.add({"id": "chatcmpl-0123456789ab", "created": 9, "choices": [choice]})
    end = {"delta": {}, "finish_reason": finish}
    answer.add({"id": "chatcmpl-0123456789ab", "created": 9, "choices": [end]})
    answer.add({"id": "chatcmpl-0123456789ab", "created": 9, "choices": [], "usage": USAGE})
    return answer


def test_text_stays_text():
    """An answer that is no call is given as it came, with its usage."""
    found = gathered("Hello there").completion(is_call=False)

    assert found["choices"][0]["message"] == {"role": "assistant", "content": "Hello there"}
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"] == USAGE


def test_a_call_is_given_as_a_call():
    """The JSON that the grammar forced becomes a tool call."""
    choice = gathered(CALL).completion(is_call=True)["choices"][0]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {
            "id": "call_0123456789ab",
            "type": "function",
            "function": {"name": "add", "arguments": '{"first": 1, "second": 2}'},
        }
    ]


def test_a_streamed_call_comes_in_fragments():
    """Id and name come first, then the arguments in several pieces that add up."""
    first, *rest, last = gathered(CALL).call_chunks()
    opening = first["choices"][0]["delta"]["tool_calls"][0]
    fragments = [
        chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for chunk in rest
    ]

    assert opening["function"] == {"name": "add", "arguments": ""}
    assert len(fragments) > 1
    assert "".join(fragments) == '{"first": 1, "second": 2}'
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_cut_short_is_given_as_text():
    """Half a call cannot be run; the client sees what there is and why it ended."""
    chunks = list(gathered(CALL[:20], finish="length").call_chunks())

    assert chunks[0]["choices"][0]["delta"]["content"] == CALL[:20]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_chunks_do_not_name_the_machine():
    """The path of the weights and the timings stay here."""
    found = cleaned({"id": "a", "choices": [], "model": "somewhere/x.gguf", "timings": {}})

    assert found == {"id": "a", "choices": [], "model": "local"}
