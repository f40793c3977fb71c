"""Skills: what a file says, which folders are looked at, and what of them a prompt has."""

import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from cmdc_runtime import skills
from cmdc_runtime.skills import Catalogue, discover, load, parse, to_prompt_snippet, validate

CORPUS = tomllib.loads(
    (Path(__file__).parents[2] / "corpora" / "skills" / "validator.toml").read_text()
)["case"]
NEVER = "m\N{LATIN SMALL LETTER A WITH DIAERESIS}"


def skill(folder, name, description="Does it.", more="", body="Do it."):
    """Write a skill into ``folder`` and return its own folder."""
    own = Path(folder, name)
    own.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"
    (own / "SKILL.md").write_text(text)
    return own


@pytest.mark.parametrize("case", CORPUS, ids=[case["name"] for case in CORPUS])
def test_the_validator_says_what_the_corpus_says(case, tmp_path):
    """The cases of the format's own validator, those that differ with their reason, and ours."""
    folder = tmp_path / case["folder"]
    if case.get("is_folder", True):
        folder.mkdir()
    if "text" in case:
        text = case["text"].replace("@long@", "x" * case.get("long", 0))
        (folder / case.get("file", "SKILL.md")).write_text(text)
    problems = validate(folder)

    assert len(problems) == len(case["problems"]), problems
    for problem, part in zip(problems, case["problems"], strict=True):
        assert part in problem


def test_a_skill_has_what_its_file_says():
    """All fields, lists in both spellings, and the body without the blank lines around it."""
    text = (
        "---\nname: pdf\ndescription: >\n  Reads\n  PDF.\nlicense: MIT\ncompatibility: Python\n"
        "allowed-tools: Bash(jq:*) Read\nmetadata:\n  version: 1.0\n---\n\n# Do\n"
    )
    found = parse(text, "pdf").skill

    assert found == msgspec.structs.replace(
        parse(text.replace("allowed-tools", "allowed_tools")).skill, digest=found.digest
    )
    assert (found.name, found.description, found.body) == ("pdf", "Reads PDF.", "# Do")
    assert (found.allowed_tools, found.metadata) == (("Bash(jq:*)", "Read"), {"version": "1.0"})


def test_everything_that_is_wrong_is_named_at_once():
    """So that a file is mended in one go."""
    wrong = parse("---\nname: A B\ndescription: ''\ncompatibility: [x]\n---\n", "a").problems

    assert [one.partition(":")[0] for one in wrong] == [
        *("name", "name", "description", "compatibility"),
    ]


def test_a_hostile_front_matter_is_a_problem():
    """Nothing is built of it that is not written there."""
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\n"
    for matter in (bomb, "[" * 30_000, "- " * 30_000, "a: !!python/object:os.system {}\n", "\0"):
        parsed = parse(f"---\n{matter}\n---\n")

        assert parsed.skill is None
        assert parsed.problems


def test_a_later_folder_outranks_an_earlier_one(tmp_path):
    """By name; and a word says where a skill is from."""
    skill(tmp_path / "base", "pdf", "Old.")
    skill(tmp_path / "base", "csv")
    skill(tmp_path / "team", "pdf", "New.")
    dirs = [("base", tmp_path / "base"), ("team", tmp_path / "team"), tmp_path / "missing"]
    found = discover(dirs, tmp_path / "elsewhere")

    assert [(one.name, one.source, one.description) for one in found.skills] == [
        *(("csv", "base", "Does it."), ("pdf", "team", "New.")),
    ]
    assert found.problems == ()


def test_a_bad_file_is_named_and_the_others_are_there(tmp_path):
    """Whatever is bad about it."""
    skill(tmp_path, "good")
    (skill(tmp_path, "large") / "SKILL.md").write_text("x" * (skills.FILE_BYTES_MAX + 1))
    (skill(tmp_path, "latin") / "SKILL.md").write_bytes(NEVER.encode("latin-1"))
    (skill(tmp_path, "pipe") / "SKILL.md").unlink()
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    skill(tmp_path, "Bad")
    found = discover([tmp_path], tmp_path / "elsewhere")

    assert [one.name for one in found.skills] == ["good"]
    assert {Path(one.path).name for one in found.problems} == {"large", "latin", "pipe", "Bad"}


def test_a_field_of_no_meaning_is_named_and_the_skill_is_used(tmp_path):
    """Authors add fields for other programs."""
    skill(tmp_path, "pdf", more="version: 2\n")
    found = discover([tmp_path])

    assert [one.name for one in found.skills] == ["pdf"]
    assert [one.text for one in found.problems] == ["version: there is no such field"]


def test_an_id_is_made_once_and_stays(tmp_path):
    """It names the skill wherever it is copied; a skill is found by it."""
    own = skill(tmp_path, "pdf")
    first = discover([tmp_path]).skills[0]
    again = discover([tmp_path])

    assert first.id.startswith("pdf__imp_")
    assert (own / ".skill_id").read_text() == f"{first.id}\n"
    assert again.find(first.id) == again.find("pdf") == first
    assert again.find("PDF") is None


def test_a_link_out_of_a_skill_of_the_project_is_no_skill(tmp_path):
    """Tools can write there; what a user links in folders of their own is theirs."""
    project, home = tmp_path / "project", tmp_path / "home"
    kept = skill(tmp_path / "kept", "pdf") / "SKILL.md"
    for folder in (project / ".cmdc" / "skills" / "pdf", home / "pdf"):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").symlink_to(kept)
    of_project = discover([".cmdc/skills"], project)

    assert [one.name for one in discover([home], project).skills] == ["pdf"]
    assert of_project.skills == ()
    assert "leads out of it by a link" in of_project.problems[0].text


@pytest.mark.parametrize("linked", ["skills", "skills/pdf"])
def test_a_skill_of_the_project_that_lies_outside_is_none(tmp_path, linked):
    """A tool could have made the link; nothing is read or written there, and named it is one."""
    project, out = tmp_path / "project", tmp_path / "out"
    kept = skill(out, "pdf")
    (project / linked).parent.mkdir(parents=True)
    (project / linked).symlink_to(out if linked == "skills" else kept)
    found = discover(["skills"], project)

    assert found.skills == ()
    assert "name the folder there" in found.problems[0].text
    assert [one.name for one in kept.iterdir()] == ["SKILL.md"]
    assert [one.name for one in discover([str(out)], project).skills] == ["pdf"]


def test_a_skill_of_the_project_is_known_by_its_place(tmp_path):
    """As it is named, and as it is linked."""
    project, home = tmp_path / "project", tmp_path / "home"
    skill(project / ".cmdc" / "skills", "own")
    skill(home, "mine")
    (home / "linked").symlink_to(skill(project / "deep", "linked"))
    found = discover([home, ".cmdc/skills"], project)

    assert {one.name: one.is_of_project for one in found.skills} == {
        "own": True,
        "mine": False,
        "linked": True,
    }
    assert found.find("own").source == "project"


def test_a_change_is_found_without_reading_what_stayed(tmp_path):
    """An edit, a new skill and one that is gone; nothing else is reported as a change."""
    skill(tmp_path, "a")
    skill(tmp_path, "b")
    catalogue = Catalogue([tmp_path])

    assert catalogue.refresh()
    before = catalogue.skills
    assert not catalogue.refresh()
    skill(tmp_path, "b", "Does more.")
    skill(tmp_path, "c")
    (tmp_path / "a" / "SKILL.md").unlink()
    assert catalogue.refresh()
    assert [one.name for one in catalogue.skills] == ["b", "c"]
    assert catalogue.find("b").digest != before[1].digest


def test_a_skill_is_loaded_as_it_is_now(tmp_path):
    """With its body; one that is none any more is refused."""
    own = skill(tmp_path, "pdf", body="First.")
    found = discover([tmp_path]).skills[0]
    skill(tmp_path, "pdf", body="Second.")

    assert (found.body, load(found).body) == ("", "Second.")
    (own / "SKILL.md").write_text("nothing")
    with pytest.raises(ValueError, match="front matter"):
        load(found)


@pytest.mark.parametrize("count", [1, 40, 500, 900])
@pytest.mark.parametrize("tokens", [100, 1000, 4000])
def test_a_list_keeps_its_budget_and_says_what_is_missing(count, tokens):
    """All whole, all cut to one length, names only, or some left out."""
    many = [skills.Skill(name=f"skill-{n}", description="x" * (n % 1024 + 1)) for n in range(count)]
    text = to_prompt_snippet(many, tokens)

    assert len(text) <= tokens * skills.CHARS_PER_TOKEN
    is_whole = all(f"- {one.name}: {one.description}" in text for one in many)
    assert is_whole or "load_skill" in text
    left = sum(f"- {one.name}" not in text.replace(":", "\n").splitlines() for one in many)
    assert not left or f"[{left} skills are left out" in text
