"""Images and files on each wire, as a vendor's server gets them, with and without litellm."""

import base64

import pytest

from cmdc_runtime.extensions.provider import TextChunk
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
PDF = b"%PDF-1.4\n%%EOF\n"
ADDRESS = "https://example.org/dog.png"
PAPER = "https://example.org/paper.pdf"
IMAGE = MessagePart(media_type="image/png", digest="png", size=len(PNG), at=5)
FILE = MessagePart(media_type="application/pdf", digest="pdf", size=len(PDF), name="bill.pdf", at=5)
NOTES = MessagePart(media_type="text/plain", digest="text", size=5, name="notes.txt", at=5)
THERE = MessagePart(media_type="image/png", url=ADDRESS, at=5)
PAPER_THERE = MessagePart(media_type="application/pdf", url=PAPER, at=5)
BLOBS = {"png": PNG, "pdf": PDF, "text": b"hello"}
IMAGE64, FILE64 = (base64.b64encode(body).decode() for body in (PNG, PDF))
NOTES_TEXT = '<file name="notes.txt">\nhello\n</file>'


@pytest.fixture
def content_of(ask, llmock):
    """Send a message with parts; return its content as it came over the wire."""

    def content_of_(wire, *parts, **fields):
        llmock.plan({"type": "reply", "text": "fine"})
        message = Message(role="user", content="Look.And?", parts=parts)
        chunks, failure = ask(llmock, wire, messages=(message,), blobs=BLOBS, **fields)
        assert failure is None
        assert TextChunk(text="fine") in chunks
        body = llmock.seen()[-1]
        (said,) = body["contents"] if wire == "gemini" else body["messages"]
        return said["parts" if wire == "gemini" else "content"]

    return content_of_


def test_openai_gets_data_in_addresses(content_of):
    """An image is an address of data, or its own; a PDF has a name."""
    assert content_of("openai", IMAGE, THERE, FILE, NOTES) == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE64}"}},
        {"type": "image_url", "image_url": {"url": ADDRESS}},
        {
            "type": "file",
            "file": {
                "filename": "bill.pdf",
                "file_data": f"data:application/pdf;base64,{FILE64}",
            },
        },
        {"type": "text", "text": NOTES_TEXT},
        {"type": "text", "text": "And?"},
    ]


def test_anthropic_gets_images_and_documents(content_of):
    """By their bytes, or by their addresses."""
    image = {"type": "base64", "media_type": "image/png", "data": IMAGE64}
    document = {"type": "base64", "media_type": "application/pdf", "data": FILE64}

    assert content_of("anthropic", IMAGE, THERE, FILE, PAPER_THERE, NOTES) == [
        {"type": "text", "text": "Look."},
        {"type": "image", "source": image},
        {"type": "image", "source": {"type": "url", "url": ADDRESS}},
        {"type": "document", "source": document},
        {"type": "document", "source": {"type": "url", "url": PAPER}},
        {"type": "text", "text": NOTES_TEXT},
        {"type": "text", "text": "And?"},
    ]


@pytest.mark.parametrize("way", ["litellm"], indirect=True)
def test_google_gets_inline_data(content_of):
    """Its wire has no addresses of others: litellm opens them, which no test does."""
    found = content_of("gemini", IMAGE, FILE, NOTES)

    assert [one.get("text") for one in found if "text" in one] == ["Look.", NOTES_TEXT, "And?"]
    assert [one for one in found if "text" not in one] == [
        {"inline_data": {"data": IMAGE64, "mime_type": "image/png"}},
        {"inline_data": {"data": FILE64, "mime_type": "application/pdf"}},
    ]


@pytest.mark.parametrize("wire", ["openai", "anthropic", "gemini"])
def test_what_a_model_cannot_read_is_described_in_words(wire, content_of):
    """So is what the journal has lost; nothing else of it is sent."""
    models = {
        "openai": "openai:gpt-3.5-turbo",
        "anthropic": "anthropic:claude-sonnet-4-5",
        "gemini": "gemini:gemini-2.5-flash",
    }
    lost = MessagePart(media_type="image/png", digest="gone", size=7, name="a.png")
    (described, *_) = content_of(wire, lost, model=models[wire])
    words = "[image a.png, image/png, 7 bytes: it is left out"

    assert described["text"].startswith(words)
    assert described["text"].removeprefix(words) == (
        ", since you cannot read it]" if wire == "openai" else " of this request]"
    )
