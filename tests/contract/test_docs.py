"""The documentation says what the code does: options, causes, fields, sources, words and links are compared with it."""

import ast
import re
import shlex
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

import pytest
import typer

from ncclprobe.analyze.detector import find_detectors
from ncclprobe.cli.main import app
from ncclprobe.model import evidence, manifest, report
from ncclprobe.model.report import Cause
from ncclprobe.prepare.environment import make_plan
from ncclprobe.prepare.job_rules import JOB_RULES
from ncclprobe.prepare.rules import RULES
from ncclprobe.probe.plugins import find_sources
from ncclprobe.probe.source import Options, Source
from ncclprobe.report.renderer import find_renderers
from ncclprobe.repro.catalog import all_repros
from ncclprobe.repro.mismatched_logging import REPRO as MISMATCHED_LOGGING
from ncclprobe.repro.truth import truth_of

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")])
WIDTH = 120

REPORT_TYPES = (
    *(report.Report, report.Verdict, report.BlockedOn, report.CodeLocation, evidence.Citation, report.Finding),
    *(report.RankState, report.GroupState, report.GroupWait, evidence.Gap, report.Coverage),
)
MANIFEST_TYPES = (manifest.Manifest, manifest.HostOutcome, manifest.SourceOutcome, evidence.Artifact)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def without_code(text: str) -> str:
    """The text with its fenced blocks emptied."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def sections(text: str) -> dict[str, str]:
    """Headings of the second level, and what is below each."""
    parts = re.split(r"^## (.+)$", without_code(text), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of a table; `\\|` is part of a cell."""
    for line in text.splitlines():
        if line.startswith("|") and not set(line) <= set("|- "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Links and layout


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8")))
    for link in (link for link in links if "://" not in link):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [REPOSITORY / "README.md", DOCS / "README.md"]
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            names = re.findall(r"\]\(([^)#\s]+\.md)", path.read_text(encoding="utf-8"))
            todo += [(path.parent / name).resolve() for name in names if "://" not in name]
    assert set(DOCS.rglob("*.md")) <= seen


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(DOCS)))
def test_prose_is_wrapped(path: Path) -> None:
    lines = without_code(path.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []


# The command line


def commands() -> dict[str, typing.Any]:
    """The parsers of `ncclprobe` itself and of each command, by name."""
    group: typing.Any = typer.main.get_command(app)
    return {"ncclprobe": group, **group.commands}


def parameters(command: typing.Any) -> Iterator[typing.Any]:
    yield from command.get_params(typer.Context(command, **(app.info.context_settings or {})))


def names_of(command: typing.Any) -> set[str]:
    found: set[str] = set()
    for parameter in parameters(command):
        found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def documented() -> dict[str, dict[str, list[str]]]:
    """Command -> option -> its row. A heading names, in backquotes, the commands its tables are about."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in commands()}
    for heading, text in sections(page("reference/cli.md")).items():
        for command in set(re.findall(r"`([^`]+)`", heading)) & found.keys():
            for row in rows(text):
                if row[0].startswith("`"):
                    # `--hosts FILE`: the name, then what it takes
                    found[command].update((name.split()[0], row) for name in re.findall(r"`([^`]+)`", row[0]))
    return found


@pytest.mark.parametrize("name", commands())
def test_every_option_is_documented_and_no_other(name: str) -> None:
    of_page = {option for option in documented()[name] if not option[0].isdigit()}
    assert of_page == names_of(commands()[name])


@pytest.mark.parametrize("name", [name for name in commands() if name != "ncclprobe"])
def test_defaults_are_as_documented(name: str) -> None:
    for parameter in parameters(commands()[name]):
        cell = documented()[name][parameter.opts[0]][1]
        if isinstance(parameter.default, (int, float, str)) and not isinstance(parameter.default, bool):
            assert (
                cell.strip("`") == f"{parameter.default:g}" if not isinstance(parameter.default, str) else "`" in cell
            )
        elif isinstance(parameter.default, bool):
            assert cell in ({True: "on", False: "off"}[parameter.default], "Print the options and end.")


def test_formats_and_reproducers_are_named() -> None:
    for name in (*find_renderers(), *(repro.name for repro in all_repros())):
        assert f"`{name}`" in page("reference/cli.md")


def shown_commands() -> Iterator[tuple[Path, list[str]]]:
    """Every call of ncclprobe in a block of code."""
    for path in PAGES:
        for block in code_blocks(path.read_text(encoding="utf-8")):
            for line in re.findall(r"^(?:\$ )?(?:sudo )?ncclprobe (?!  |\[)([a-z-][^#|>\n]*)", block, re.MULTILINE):
                if "[OPTIONS]" not in line:
                    words = shlex.split(line.strip())
                    # What follows `--` is a command of its own.
                    yield path, words[: words.index("--")] if "--" in words else words


def test_commands_in_examples_exist() -> None:
    calls = list(shown_commands())
    assert len(calls) > 10
    for path, (first, *rest) in calls:
        command = commands()["ncclprobe" if first.startswith("-") else first]
        options = {word.split("=")[0] for word in (first, *rest) if word.startswith("-") and word != "-"}
        assert options <= names_of(command), f"{path.name}: {first} {rest}"


def test_the_tutorial_shows_the_program_that_runs() -> None:
    truth, text = truth_of(MISMATCHED_LOGGING, MISMATCHED_LOGGING.default_ranks), page("tutorial.md")
    assert truth.place in text
    program = re.sub(r"  # planted.*|^ +", "", MISMATCHED_LOGGING.path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for block in re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        assert re.sub(r"^ +", "", block, flags=re.MULTILINE) in program


# Causes


def test_every_cause_has_its_section_and_no_other() -> None:
    headings = list(sections(page("reference/causes.md")))
    assert headings == [str(cause) for cause in Cause]


@pytest.mark.parametrize("cause", Cause)
def test_a_cause_says_whether_it_can_be_found(cause: Cause) -> None:
    found = {known for detector in find_detectors() for known in detector.causes} | {Cause.INCONCLUSIVE}
    text = sections(page("reference/causes.md"))[str(cause)]
    for part in ("Told from look-alikes:", "Guilty:", "Fix:"):
        assert f"- **{part}**" in text
    assert f"- **This version:** {'finds it' if cause in found else 'does not find it yet'}" in text
    table = list(rows(page("reference/causes.md").partition("\n## ")[0]))
    column = 0 if cause in found else 1
    assert any(f"[{cause}](#{cause})" in row[column] for row in table)


# Fields


def words(hint: typing.Any) -> str:
    """A type as the tables write it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return f"{words(arguments[0])} or null"
    if origin is tuple:
        return f"list of {words(arguments[0])}"
    if origin is dict:
        return f"object of {words(arguments[1])}"
    if is_dataclass(hint):
        return f"[{hint.__name__}]"  # type: ignore[union-attr]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "string"
    return {str: "string", int: "integer", float: "number", bool: "true or false"}[hint]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("reference/json.md", kind) for kind in REPORT_TYPES),
        *(("reference/bundle.md", kind) for kind in MANIFEST_TYPES),
    ],
)
def test_fields_and_types_are_documented(name: str, kind: type) -> None:
    hints = typing.get_type_hints(kind)
    expected = [(f"`{field.name}`", words(hints[field.name])) for field in fields(kind)]  # type: ignore[arg-type]
    table = [row for row in rows(sections(page(name))[kind.__name__]) if row[0].startswith("`")]
    assert [(row[0], re.sub(r"\]\([^)]*\)", "]", row[1])) for row in table] == expected
    assert all(row[2] for row in table)


def test_words_of_the_report_and_the_manifest_are_documented() -> None:
    both = page("reference/json.md") + page("reference/bundle.md")
    for word in (*report.Status, *report.Confidence, *evidence.Kind):
        assert f"`{word}`" in both
    assert f'`"{report.SCHEMA_VERSION}"`' in page("reference/json.md")
    assert f'`"{manifest.MANIFEST_VERSION}"`' in page("reference/bundle.md")


# Sources


@pytest.mark.parametrize("source", find_sources(), ids=lambda source: source.name)
def test_every_source_is_documented(source: Source) -> None:
    text = sections(page("reference/evidence.md"))[source.name]
    facts = {row[0]: row[1] for row in rows(text)}
    assert facts["Time-out"].startswith(f"{source.timeout_s:g} s")
    assert facts["Wave"] == str(source.wave)
    assert facts["By default"].startswith("yes" if source.is_wanted(Options()) else "no")
    assert {"Reads", "Disturbs", "Needs", "Caps", "Used for"} <= facts.keys()


def test_no_source_is_documented_that_is_gone() -> None:
    names = {source.name for source in find_sources()}
    assert {heading for heading in sections(page("reference/evidence.md")) if "_" in heading} <= names


# Rules of the doctor


def test_every_rule_of_the_doctor_is_documented_with_its_level() -> None:
    table = rows(sections(page("how-to/prepare-a-job.md"))["What the doctor checks"])
    documented_rules = {row[0].strip("`"): row[1] for row in table if row[0].startswith("`")}
    assert documented_rules == {rule.name: str(rule.level) for rule in (*RULES, *JOB_RULES)}


def test_every_variable_that_run_sets_is_documented() -> None:
    table = list(rows(sections(page("how-to/prepare-a-job.md"))["What it sets, and what that costs"]))
    shown = {name: row[1].strip("`") for row in table for name in re.findall(r"`([A-Z_]+)`", row[0])}
    assert shown == make_plan({}, "DIR").variables


# What hosts answer


def literals() -> str:
    """All text in the package, with `{}` where an f-string puts something in."""
    found = []
    for path in (REPOSITORY / "ncclprobe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                found.append("".join(str(part) for part in parts))
    return "\n".join(found)


@pytest.mark.parametrize("name", ["how-to/diagnose-over-ssh.md", "explanation/safety.md"])
def test_quoted_gaps_are_what_the_code_says(name: str) -> None:
    """The first cell of a table headed "the line says" quotes it, with `...` for what differs."""
    said, quotes = literals(), []
    for text in re.split(r"\n\s*\n", without_code(page(name))):
        table = list(rows(text))
        if table and table[0][0] == "the line says":
            quotes += [quote for row in table[1:] for quote in re.findall(r"`([^`]+)`", row[0])]
    assert len(quotes) > 3
    for quote in quotes:
        pattern = ".{0,80}".join(re.escape(part) for part in quote.split("..."))
        assert re.search(pattern, said), quote
