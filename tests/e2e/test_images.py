"""Images and files of a prompt: what the model's server is sent, what is kept, what is refused."""

import asyncio
import base64
import hashlib
import os
import signal
import struct
import zlib

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.message_parts import PART_BYTES_MAX, PROMPT_PARTS_MAX
from cmdc_runtime.pages import PAGE_BYTES
from cmdc_runtime.testing import Hold, Text

TURN_S = 20.0
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n%%EOF\n"


def png(noise=0):
    """Return an image of one pixel, with a chunk of so many bytes that can't be made smaller."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", head),
            chunk(b"nOSe", hashlib.shake_128(b"noise").digest(noise)),
            chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")),
            chunk(b"IEND", b""),
        )
    )


def data_url(body, media_type):
    return f"data:{media_type};base64,{base64.b64encode(body).decode()}"


def user_content(request):
    """Return what the user has said in a request as the server got it."""
    return [one["content"] for one in request["messages"] if one["role"] == "user"]


def image(body):
    return {"type": "image_url", "image_url": {"url": data_url(body, "image/png")}}


def text(said):
    return {"type": "text", "text": said}


def test_what_was_given_arrives_in_its_order(agent, scripted, tmp_path):
    """Images by path, bytes and address, a PDF, a text: as they were given, between the texts."""
    model = scripted("seen")
    path = tmp_path / "photo.jpg"  # its name is wrong about it
    path.write_bytes(png())
    notes = tmp_path / "notes.md"
    notes.write_text("# Notes")
    session = agent(model)
    address = "https://example.org/dog.webp"
    given = [
        "Compare these:",
        cmdc.Image(path),
        "with",
        cmdc.Image(address),
        cmdc.File(PDF, name="bill.pdf"),
        cmdc.File(notes),
        "What do you see?",
    ]
    reply = session.run(given, timeout=TURN_S)
    message = reply.messages[0]

    assert reply.text == "seen"
    assert user_content(model.requests[0]) == [
        [
            text("Compare these:"),
            image(png()),
            text("with"),
            {"type": "image_url", "image_url": {"url": address}},
            {
                "type": "file",
                "file": {"filename": "bill.pdf", "file_data": data_url(PDF, "application/pdf")},
            },
            text('<file name="notes.md">\n# Notes\n</file>'),
            text("What do you see?"),
        ]
    ]
    assert message.content == "Compare these:\n\nwith\n\nWhat do you see?"
    assert [(one.media_type, one.name, one.size, one.url) for one in message.parts] == [
        ("image/png", "photo.jpg", len(png()), ""),
        ("image/webp", "dog.webp", 0, address),
        ("application/pdf", "bill.pdf", len(PDF), ""),
        ("text/markdown", "notes.md", 7, ""),
    ]


def test_a_plain_prompt_is_what_it_was(agent, scripted):
    """A text alone goes over the wire as a text, and so does a list of texts."""
    model = scripted("one", "two")
    session = agent(model)
    session.run("Hello.", timeout=TURN_S)
    session.run(["Hello", "again."], timeout=TURN_S)

    assert user_content(model.requests[1]) == ["Hello.", "Hello\n\nagain."]


def test_bytes_are_nowhere_but_once_in_the_journal(agent, scripted, client):
    """Events, records and commands have the digest; what was given twice is kept once."""
    body = png(3 * PAGE_BYTES)
    model = scripted("one", "two")
    session = agent(model)
    with session.subscribe() as stream:
        session.run(["Look.", cmdc.Image(body)], timeout=TURN_S)
        session.run([cmdc.Image(body)], timeout=TURN_S)
        received = [stream.get(TURN_S).event for _ in range(2)]
    (asked, *_) = [one for one in received if isinstance(one, cmdc.events.PromptReceived)]

    assert [part.digest for part in asked.parts] == [hashlib.sha256(body).hexdigest()]
    assert user_content(model.requests[1]) == [[text("Look."), image(body)], [image(body)]]
    assert sum(map(len, map(str, session.messages()))) < 20_000


def test_coroutines_send_images_too(cmdc_daemon, scripted):
    """``prompt``, ``stream`` and ``stream_events`` of aio take what ``run`` takes."""
    model = scripted("one", "two", "three")
    heard = asyncio.run(asked_by_coroutines(cmdc_daemon.address, model))

    assert heard == ["one", "two", "agent_end"]
    assert user_content(model.requests[2]) == [[image(png())]] * 3


async def asked_by_coroutines(address, model):
    """Ask for the same in three ways, and return what each has reported last."""
    async with cmdc.AsyncClient(address) as client:
        session = await client.create_agent(model=model)
        async with session:
            await session.prompt([cmdc.Image(png())])
            heard = [await session.collect_reply(timeout=TURN_S)]
            async with session.stream([cmdc.Image(png())], timeout=TURN_S) as pieces:
                heard.append("".join([piece async for piece in pieces]))
            async with session.stream_events([cmdc.Image(png())], timeout=TURN_S) as events:
                heard.append([event.kind async for event in events][-1])
    return heard


def test_an_image_survives_the_death_of_its_agent(agent, scripted, poll):
    """The process that comes next sends the same image again."""
    model = scripted((Text("half"), Hold(), "never"), "whole")
    session = agent(model)
    session.prompt(["Look.", cmdc.Image(png())])
    model.wait_held(TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    model.wait_abandoned()

    assert session.collect_reply(timeout=TURN_S) == "whole"
    assert user_content(model.requests[1]) == [[text("Look."), image(png())]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([cmdc.Image(b"BM not taken")], r"Image: it begins with b'BM not t'.*PNG, JPEG, GIF"),
        ([cmdc.Image(PDF)], "it is application/pdf: give it as a cmdc.File"),
        ([cmdc.Image(b"")], "Image: it is empty"),
        ([cmdc.Image(png(), media_type="image/jpeg")], "image/jpeg, and its bytes are image/png"),
        ([cmdc.Image("/no/such/file.png")], "No such file"),
        ([cmdc.Image("ftp://example.org/a.png")], "expected https://"),
        ([cmdc.Image("data:image/png;base64,aaaa")], "give the bytes"),
        ([cmdc.File("https://example.org/file")], "give media_type"),
        ([cmdc.File("https://example.org/notes.txt")], "no vendor opens .* give its bytes"),
        ([cmdc.File("https://example.org/a.pdf")], "PDFs and text alone"),
        ([cmdc.File(b"\0\1\2\3")], "none of what is taken"),
        ([cmdc.File(bytes(PART_BYTES_MAX + 1))], "16,777,216 bytes are taken, it has 16,777,217"),
        ([cmdc.Image(png())] * (PROMPT_PARTS_MAX + 1), "33 images and files.* at most 32"),
        ([cmdc.File(b"a" * PART_BYTES_MAX), cmdc.File(b"b" * PART_BYTES_MAX)], "25,165,824 bytes"),
        (["text", 7], r"prompt\[1\]: expected a str, a cmdc.Image or a cmdc.File, got 7"),
        ([cmdc.Image(7)], "source: expected a path, bytes or an address, got 7"),
    ],
)
def test_what_is_no_image_or_file_is_refused(agent, scripted, given, said):
    """The error names the thing, what it is and the way out; nothing is asked of the model."""
    model = scripted()
    session = agent(model)
    with pytest.raises(cmdc.InvalidPart, match=said):
        session.prompt(given)

    assert session.messages()[1:] == []
    assert model.requests == []


def test_a_model_that_cannot_see_is_distinguished_before_anything_is_sent(agent, scripted):
    """The table of models says so; what an earlier prompt has shown is given in words."""
    model = scripted("seen", "blind")
    name, opts = model.model_source()
    session = agent(model)
    session.run([cmdc.Image(png())], timeout=TURN_S)
    session.switch_model("openai:gpt-3.5-turbo", provider_opts=opts)
    with pytest.raises(cmdc.InvalidPart, match=r"gpt-3.5-turbo takes text alone.*switch_model"):
        session.prompt(["And this?", cmdc.Image(png())])
    session.run("And now?", timeout=TURN_S)

    assert name != "openai:gpt-3.5-turbo"
    assert user_content(model.requests[1]) == [
        [text(f"[image image/png, {len(png())} bytes: it is left out, since you cannot read it]")],
        "And now?",
    ]


def test_a_fork_holds_the_images_too(agent, scripted, client):
    """Also one of a checkpoint, when the session that it comes from is gone."""
    model = scripted("one", "two", "three")
    session = agent(model)
    session.run(["Look.", cmdc.Image(png())], timeout=TURN_S)
    session.checkpoint()
    with client.resume_session(session, new_id=f"{session.id}-fork") as fork:
        session.stop()
        fork.run("And now?", timeout=TURN_S)
    with client.resume_session(session) as again:
        again.run("And then?", timeout=TURN_S)
    seen = [text("Look."), image(png())]

    assert user_content(model.requests[1]) == [seen, "And now?"]
    assert user_content(model.requests[2]) == [seen, "And then?"]


def test_a_steering_has_images_too(agent, scripted):
    """Those that wait for a turn's end join as one message, each image in its place."""
    model = scripted((Text("on my way"), Hold()), "seen", "seen again")
    session = agent(model)
    session.prompt("Go.")
    model.wait_held(TURN_S)
    session.steer(["Look", cmdc.Image(png())])
    session.steer([cmdc.Image(png()), "and here."])
    model.release()
    answer = session.collect_reply(timeout=TURN_S)
    session.steer(["Once more.", cmdc.Image(png())])

    assert answer == "seen"
    assert session.collect_reply(timeout=TURN_S) == "seen again"
    guided = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "user"][1]
    assert guided == [text("Look"), image(png()), image(png()), text("and here.")]
    assert user_content(model.requests[2])[-1] == [text("Once more."), image(png())]
    with pytest.raises(cmdc.InvalidPart, match="none of what is taken"):
        session.steer([cmdc.Image(b"none")])
