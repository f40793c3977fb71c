"""Images and files in a prompt: in their place between the texts, and still there after a crash.

CMDC_MODEL=openai:gpt-4o-mini python examples/20_images.py [PICTURE ...]
"""

import base64
import os
import signal
import sys

import cmdc_runtime as cmdc

MODEL = os.environ["CMDC_MODEL"]
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
"""A red one, for whoever gives no picture of his own."""

pictures = [cmdc.Image(path) for path in sys.argv[1:]] or [cmdc.Image(DOT)]
notes = cmdc.File(b"colour, mood\nred, angry\nblue, sad\n", name="moods.csv")

with cmdc.create_agent(model=MODEL) as session:
    for text in session.stream(["What is to be seen here?", *pictures, "Say it in a sentence."]):
        print(text, end="", flush=True)
    print()

    # The bytes are in the journal, once; messages name them.
    question = next(one for one in session.messages() if one.role == "user")
    for part in question.parts:
        print(f"{part.media_type}, {part.size} bytes, kept as {part.digest[:8]}")

    ended = session.monitor()
    os.kill(session.agent_pid() or 0, signal.SIGKILL)
    ended.wait(10)

    # The next process shows the model the same picture, with a file beside it.
    print(session.run(["And in which mood is it?", notes]).text)
