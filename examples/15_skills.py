"""Skills: instructions that the model reads when it needs them, and sees change while it works.

CMDC_MODEL=openai:gpt-4o-mini python examples/15_skills.py
"""

import os
import tempfile
from pathlib import Path

import cmdc_runtime as cmdc

SKILL = """---
name: greeting
description: Says how we greet customers. Use it before you write to one.
---
{}
"""

with tempfile.TemporaryDirectory() as folder:
    work, skill = Path(folder, "work"), Path(folder, "skills", "greeting")
    for path in (work, skill):
        path.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL.format("Begin with: Ahoy!"))
    print("problems:", cmdc.skills.validate(skill))

    with cmdc.create_agent(
        model=os.environ["CMDC_MODEL"],
        skills_dirs=[("team", skill.parent)],
        working_dir=str(work),
    ) as session:
        print("skills:", [one.name for one in session.status().skills])
        print(session.run("Write one line to a customer.").text)

        # The next request names the change; the system prompt stays as it is.
        (skill / "SKILL.md").write_text(SKILL.format("Begin with: Good day!"))
        print(session.run("And one to another customer.").text)
