"""``mechint explain``: a program of the model, and its audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.analyze import print_account, report_of, report_problems, write
from mechint.cli.common import (
    GroupedCommand,
    count_option,
    data_option,
    example_commands,
    model_options,
    out_option,
    path_option,
    print_error,
    set_option,
    task_option,
)
from mechint.cli.opening import Opening, check_options, one_model
from mechint.errors import ParameterError, UnknownNameError, one_line
from mechint.registry import EXPLANATIONS
from mechint.system.progress import console, counting

if TYPE_CHECKING:
    from mechint.explanation import Audit, Certificate
    from mechint.report.page import Section
    from mechint.subject import Subject

TRUST = "What must you trust?"


@click.command(
    cls=GroupedCommand,
    short_help="Propose a program of the model, and audit it.",
    epilog=example_commands(
        "mechint explain runs/add",
        "mechint explain model.pt --task modular-arithmetic --set p=59 --family frequencies",
        "mechint explain runs/max --claim 'L0H0 attends largest token'",
        "mechint explain smollm2 --data p.jsonl --claim 'L17H4 attends token after an earlier "
        "equal one'",
        "mechint explain runs/digits --claim 'L0 resid_post @ answer holds carry_0'",
        "mechint explain runs/add --python add.py",
        "mechint explain runs/add --certify",
        "mechint explain runs/digits --answer 2",
        "mechint explain model.pt --data prompts.jsonl --python program.py",
    ),
)
@click.argument("paths", metavar="PATH", nargs=-1, required=True, type=click.Path(path_type=Path))
@data_option
@click.option(
    "--claim",
    "claimed",
    multiple=True,
    metavar="CLAIM",
    help="A claim of yours; may be repeated, and each is judged.",
)
@path_option(
    "--python",
    help="Write the best explanation as a Python file of numpy alone, with its constants.",
)
@click.option(
    "--certify",
    "certified",
    is_flag=True,
    help="Count the model, the best program that stands and the task on every input.",
)
@task_option
@out_option
@set_option
@click.option("--family", metavar="NAME", help="The family that proposes; all that apply.")
@click.option(
    "--program",
    "under",
    metavar="NAME",
    help="What claims are made under in place of the task's own program, or --certify counts: a "
    "rival, or FILE.py:NAME of a function from tokens to the answer.",
)
@count_option(
    "--examples", "n", help="Inputs, half of them fitted and half judged.", low=64, default=3000
)
@count_option(
    "--member",
    "member",
    help="Of a model that answers --data with a set: whether this symbol is in it.",
    low=0,
)
@model_options
def explain(paths: tuple[Path, ...], **given: Any) -> int:
    """Propose programs of a model and audit each by interventions, best first.

    A program is fitted on one half of the inputs and judged on the other: do the logits follow from
    it, is the answer kept when a part comes from the program and the rest from another input, and
    do interchanges give its counterfactual answers? Of several answers of an example, without
    --answer, each has its program; claims and files are of the last one.
    """
    path = one_model(paths, "explain")
    _check(given)
    n, seed = given["n"], given["seed"]
    opening = Opening(path, given)
    with counting(f"explaining {path}"):
        from mechint.account import account_of
        from mechint.checkpoints import load
        from mechint.explanation import explain as propose
        from mechint.explanation.propose import MAX_ANSWERS
        from mechint.models.members import of_member
        from mechint.probe.results import SCHEMA

        subject = opening.subject
        if given["member"] is not None:
            subject = load(of_member(subject.model, given["member"]), data=given["data"])
        one = given["answer"] is not None or given["claimed"] or given["python"] is not None
        if not one and 1 < len(subject.answers) <= MAX_ANSWERS:
            subject = subject.with_answer("all")
        found = (
            _judged(subject, given)
            if given["claimed"]
            else propose(subject, family=given["family"], seed=seed, examples=n)
        )
        account = account_of(subject, {}, warnings=opening.checkpoint.warnings()).explained(found)
        certificates = _certified(subject, found, given) if given["certified"] else []
    out, problems = given["out"], list[str]()
    if out is not None:
        page = report_of(opening, account, "explain")
        sections = [*map(_section, certificates), *page.sections]
        problems = write(dataclasses.replace(page, sections=sections), given)
    if given["as_json"] or given["brief"]:
        whole = {"schema": SCHEMA, "path": str(path), "audits": account.audits}
        whole |= {"certificates": [one.to_dict() for one in certificates]} if certificates else {}
        print_account(account, given, [path], whole)
    else:
        from mechint.explanation.text import audits_text

        screen, heading = console(), one_line(f"{account.title}   {path}")
        for warning in account.warnings:
            screen.print(f"warning: {warning}", markup=False, highlight=False)
        screen.print(audits_text(found, heading, screen.width), soft_wrap=True)
        for one in certificates:
            screen.print(f"\n{one}", markup=False, highlight=False)
    if given["python"] is not None:  # what was measured is said where the file cannot be written
        _write(given["python"], subject, found[0], seed, n)
    return report_problems(problems)


def _check(given: Mapping[str, Any]) -> None:
    """An error where options cannot be followed together, or a file may not be replaced."""
    check_options(given)
    if given["family"] is not None and given["family"] not in EXPLANATIONS:
        raise UnknownNameError.of("family of explanations", given["family"], EXPLANATIONS)
    if given["family"] is not None and given["claimed"]:
        raise ParameterError("--family and --claim: expected one of them")
    if given["under"] is not None and not (given["claimed"] or given["certified"]):
        raise ParameterError("--program: is what --claim is made under, or --certify counts")
    if given["answer"] == "all" and (given["claimed"] or given["python"] is not None):
        raise ParameterError("--answer all: a claim, a file: of one answer; expected a number")
    if given["member"] is not None and given["data"] is None:
        raise ParameterError("--member: is asked of prompts; give --data")
    if given["python"] is not None:
        from mechint.explanation.code import MARK
        from mechint.report.outputs import check_writable

        kind = "a program that mechint wrote"
        check_writable(given["python"], force=given["force"], mark=MARK.encode(), kind=kind)


def _judged(subject: Subject, given: Mapping[str, Any]) -> list[Audit]:
    """The audits of the claims of ``--claim``."""
    from mechint.explanation import audit
    from mechint.explanation.claims import parse_claim

    more = {"seed": given["seed"], "examples": given["n"], "program": _program(given)}
    return [audit(subject, parse_claim(text), **more) for text in given["claimed"]]


def _program(given: Mapping[str, Any]) -> Any:
    """The program that ``--program`` names, or the function of a file."""
    program = given["under"]
    file, py, name = (program or "").rpartition(".py")
    return _function("--program", file + py, name.removeprefix(":")) if py else program


def _certified(
    subject: Subject, found: Sequence[Audit], given: Mapping[str, Any]
) -> list[Certificate]:
    """A certificate of each answer, with the program that was given, or the best if that stands."""
    from mechint.decide.words import STANDS
    from mechint.explanation import certify

    asked = [(subject, found[0])]
    if subject.answer == "all":
        asked = [(subject.with_answer(k), found[k]) for k in range(len(subject.answers))]
    program = _program(given)
    return [
        certify(
            one,
            best.explanation if program is None and best.standing in STANDS else program,
            seed=given["seed"],
            examples=given["n"],
        )
        for one, best in asked
    ]


def _section(certificate: Certificate) -> Section:
    """The certificate on a page."""
    from mechint.probe.results import Table
    from mechint.report.page import Section

    rows = {"what": list(certificate.trust), "how": list(certificate.trust.values())}
    return Section(TRUST, lead=certificate.sentence, tables={"trust": Table(rows)})


def _write(out: Path, subject: Any, found: Audit, seed: int, n: int) -> None:
    """Write the explanation of an audit as a Python file, and say how often it agrees."""
    from mechint.decide.words import NOT_FALSE
    from mechint.explanation.code import written
    from mechint.system.files import write_text

    if found.standing not in NOT_FALSE:
        raise ParameterError(f"--python {out}: {found.standing}: {found.reason}")
    made = written(subject, found.explanation, seed, n)
    write_text(out, made.text)
    print_error(
        f"program written to {out}: the model's answer on {made.agreement:.1%} of {made.n:,}"
    )


def _function(option: str, file: str, name: str) -> Any:
    """A function of a Python file, by its name."""
    import runpy

    if not Path(file).is_file():
        raise ParameterError(f"{option} {file}:{name}: there is no such file")
    try:
        names = runpy.run_path(file)
    except (Exception, SystemExit) as error:
        raise ParameterError(f"{option} {file}: {type(error).__name__}: {error}") from error
    known = {key: one for key, one in names.items() if callable(one) and key[:1] != "_"}
    if name not in known:
        raise UnknownNameError(f"{option} {file}: {UnknownNameError.of('function', name, known)}")
    return known[name]
