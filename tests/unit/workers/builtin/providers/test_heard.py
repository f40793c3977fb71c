"""Of all that comes with a refusal, the server's own words and codes are left."""

import json

import pytest

from workers.builtin.providers._failures import ERROR_BYTES_MAX, TEXT_CHARS_MAX, Heard

SAID = "Why is the maximum context length 8192?"
# What came, and the words of it.
BODIES = {
    "openai": (
        {"error": {"message": "no", "type": "t", "code": "c", "param": "p"}},
        "no t c",
    ),
    "anthropic": ({"type": "error", "error": {"type": "t", "message": "no"}}, "error t no"),
    "google": ([{"error": {"code": 400, "message": "no", "status": "S"}}], "no S"),
    "fastapi": ({"detail": [{"msg": "no", "type": "t", "input": {"text": SAID}}]}, "no t"),
    "sagemaker": ({"Message": "no", "OriginalMessage": "because"}, "no because"),
    "openrouter": (
        {"error": {"message": "no", "metadata": {"raw": "because", "input": SAID}}},
        "no because",
    ),
    "text": ("no", "no"),
    "request": ({"messages": [{"content": SAID}]}, ""),
    "quoted": ({"message": f"no: '{SAID}'"}, "no: ' '"),
    "quoted in part": ({"message": f'no: "{SAID[3:35]}"'}, "no:  "),
    "as it is": ({"message": f"no: {SAID} (really)"}, "no:   (really)"),
    "short": ({"message": "invalid 'user'"}, "invalid 'user'"),
}


def refusal(body):
    heard = Heard()
    heard.ask()
    heard.refuse(400)
    heard.note(body)
    return heard


@pytest.mark.parametrize(("body", "words"), BODIES.values(), ids=BODIES)
def test_a_servers_own_words_are_left(body, words):
    """What it repeats, in fields, in quotes or as a whole, is none of them."""
    assert refusal(json.dumps(body).encode()).words([SAID, "user"]) == words


@pytest.mark.parametrize("body", [b"<html>no", b'{"error": {"message": "no', b"\xff", b""])
def test_what_is_no_json_is_all_words(body):
    """Proxies answer in pages, and bodies are cut."""
    assert refusal(body).words() == body.decode(errors="replace")


def test_words_and_bodies_are_bounded():
    """What is looked for in them costs time."""
    heard = refusal(b"x" * ERROR_BYTES_MAX)
    heard.note(b"y" * ERROR_BYTES_MAX)

    assert heard.words() == "x" * TEXT_CHARS_MAX


def test_the_last_server_counts():
    """A client may ask several, one after the other, and an event says once what is wrong."""
    heard = refusal(b"unauthorized")
    heard.ask()
    heard.note_event(b'{"error": "first"}')
    heard.note_event(b'{"error": "second"}')

    assert (heard.is_asked, heard.status, heard.words()) == (True, None, "first")
