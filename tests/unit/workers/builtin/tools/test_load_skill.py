"""Files of skills: those of their folders, and of the project nothing outside."""

from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, ToolError
from workers.builtin.tools import load_skill

TEXT = "---\nname: pdf\ndescription: Reads PDF.\n---\nDo it.\n"


@pytest.fixture(name="project")
def _project(tmp_path):
    """Return a working folder with a skill, and a secret outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("4711")
    folder = tmp_path / "project" / "skills" / "pdf"
    (folder / "refs").mkdir(parents=True)
    (folder / "SKILL.md").write_text(TEXT)
    (folder / "refs" / "form.txt").write_text("the form")
    return tmp_path / "project"


def loaded(project, **given):
    tool = load_skill.create(["skills"])
    context = Context(session_id="s", call_id="c", working_dir=str(project))
    return tool.execute({"name": "pdf", **given}, context)


def refused(project, **given):
    with pytest.raises(ToolError) as caught:
        loaded(project, **given)
    return str(caught.value)


def test_a_skill_names_its_files_and_has_them(project):
    """By their paths in its folder, links in it too."""
    (project / "skills" / "pdf" / "link.txt").symlink_to("refs/form.txt")

    assert "Files: link.txt, refs/form.txt" in loaded(project)
    assert "the form" in loaded(project, file="refs/form.txt")
    assert "the form" in loaded(project, file="link.txt")


def test_a_link_out_is_refused(project):
    """So is a path that leads out."""
    (project / "skills" / "pdf" / "link.txt").symlink_to(project.parent / "outside" / "secret")

    assert "it is not in the folder of the skill" in refused(project, file="link.txt")
    assert "it is not in the folder of the skill" in refused(
        project, file="../../../outside/secret"
    )


def test_a_link_that_comes_after_the_look_is_not_followed(project, monkeypatch):
    """What is opened is what is checked."""
    (project / "skills" / "pdf" / "late").symlink_to(project.parent / "outside")
    monkeypatch.setattr(load_skill, "_inside", lambda folder, file: Path(folder) / file)

    assert "4711" not in refused(project, file="late/secret")


def test_a_folder_that_is_exchanged_for_a_link_out_shows_nothing(project, monkeypatch):
    """Neither names of files nor what is in them."""
    skill = load_skill.discover(["skills"], project).skills[0]
    (project / "skills" / "pdf").rename(project / "was")
    (project / "skills" / "pdf").symlink_to(project.parent / "outside")
    monkeypatch.setattr(load_skill, "load", lambda _: skill)
    found = type("Found", (), {"find": lambda *_: skill, "skills": (skill,)})
    monkeypatch.setattr(load_skill, "discover", lambda *_: found())

    assert "outside of the working folder" in refused(project, file="secret")
    assert "outside of the working folder" in refused(project)
