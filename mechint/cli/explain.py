"""``mechint explain``: a program of the model, and its audit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    answer_of,
    count_option,
    examples,
    force_option,
    foreign_options,
    json_option,
    mapping_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
)
from mechint.cli.opening import Opening
from mechint.errors import MechintError, ParameterError, UnknownNameError, one_line
from mechint.registry import EXPLANATIONS
from mechint.system.progress import console, counting, spinner

if TYPE_CHECKING:
    from mechint.explanation import Audit, Rivals


@click.command(
    short_help="Propose a program of the model, and audit it.",
    epilog=examples(
        "mechint explain runs/add",
        "mechint explain model.pt --task modular-arithmetic --set p=59 --family frequencies",
        "mechint explain runs/max --claim 'L0H0 attends largest token'",
        "mechint explain smollm2 --data p.jsonl --claim 'L17H4 attends token after an earlier "
        "equal one'",
        "mechint explain runs/digits --claim 'L0 resid_post @ answer holds carry_0'",
        "mechint explain runs/digits --claim my_claims.py:Carry",
        "mechint explain runs/add --python add.py",
        "mechint explain runs/digits --answer 2",
        "mechint explain model.pt --data prompts.jsonl --python program.py",
        "mechint explain model.pt --sample prompts.py:draw",
        "mechint explain runs/add --over-steps",
        "mechint explain first.pt second.pt --data prompts.jsonl",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@foreign_options
@mapping_option
@plugin_option
@path_option(
    "--data",
    help="Prompts, .txt or .jsonl: the model's own answers to them are explained, or a claim about "
    "a head is audited.",
)
@click.option(
    "--sample",
    metavar="FILE.py:NAME",
    help="A function that gives prompts in place of --data: of their number, and of a numpy "
    "Generator where it takes two.",
)
@click.option("--family", metavar="NAME", help="The family that proposes; all that apply.")
@click.option(
    "--claim",
    "claimed",
    multiple=True,
    metavar="CLAIM",
    help="A claim of yours, or FILE.py:NAME of a function that takes the subject; each is judged.",
)
@click.option(
    "--program",
    "under",
    metavar="NAME",
    help="What claims are made under in place of the task's own program: a rival, or FILE.py:NAME "
    "of a function from tokens to the answer.",
)
@count_option(
    "--examples", "n", help="Inputs, half of them fitted and half judged.", low=64, default=3000
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@path_option(
    "--python",
    "out",
    help="Write the best explanation as a Python file of numpy alone, with its constants.",
)
@click.option("--answer", metavar="N", help="Which answer of an example: from 0; default: last.")
@count_option(
    "--member",
    "member",
    help="Of a model that answers --data with a set: whether this symbol is in it.",
    low=0,
)
@click.option("--over-steps", is_flag=True, help="One line per kept checkpoint of a run.")
@force_option
@json_option
def explain(
    paths: tuple[Path, ...],
    task: str | None,
    settings: tuple[str, ...],
    device: str,
    mapping: Path | None,
    data: Path | None,
    sample: str | None,
    family: str | None,
    claimed: tuple[str, ...],
    under: str | None,
    n: int,
    seed: int,
    out: Path | None,
    answer: str | None,
    member: int | None,
    over_steps: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Propose programs of a model and audit each by interventions, best first.

    A program is fitted on one half of the inputs and judged on the other: do the logits follow from
    it, is the answer kept when a part comes from the program and the rest from another input, and
    do interchanges give its counterfactual answers?

    Of two models each one's best explanation is audited on the other, too: do they run the same
    program, up to the heads that run it?
    """
    path, *others = paths
    if family is not None and family not in EXPLANATIONS:
        raise UnknownNameError.of("family of explanations", family, EXPLANATIONS)
    if family is not None and claimed:
        raise ParameterError("--family and --claim: expected one of them")
    if data is not None and sample is not None:
        raise ParameterError("--data and --sample: expected one of them")
    if under is not None and not claimed:
        raise ParameterError("--program: is what --claim is made under; give one")
    which = answer_of(answer)
    if which == "all":
        raise ParameterError("--answer all: an explanation is of one answer; expected a number")
    if over_steps:
        if others:
            raise ParameterError("--over-steps: is for one run")
        given = {"--claim": claimed, "--python": out, "--task": task, "--set": settings}
        given |= {"--data": data, "--sample": sample}
        given["--mapping"] = mapping
        if idle := [name for name, value in given.items() if value]:
            raise ParameterError(f"{idle[0]}: is for one model; leave out --over-steps")
        return _over_steps(path, family, seed, which, n, as_json)
    if out is not None:
        from mechint.explanation.code import MARK
        from mechint.report.outputs import check_writable

        kind = "a program that mechint wrote"
        check_writable(out, force=force, mark=MARK.encode(), kind=kind)
    prompts = data if sample is None else _sampled(sample, n, seed)
    if member is not None and prompts is None:
        raise ParameterError("--member: is asked of prompts; give --data or --sample")
    if others:
        if len(others) > 1 or claimed or out is not None or member is not None:
            raise ParameterError(
                "two models are compared by programs that are found: no more paths, and neither "
                "--claim, --member nor --python"
            )
        openings = [
            Opening(one, task, settings, device, prompts, mapping=mapping, seed=seed, answer=which)
            for one in paths
        ]
        return _compare(openings, family, n, as_json)
    with spinner(f"explaining {path}"):
        from mechint.account import title_of
        from mechint.checkpoints import load
        from mechint.explanation import audit
        from mechint.explanation import explain as propose
        from mechint.explanation.claims import parse_claim

        opening = Opening(
            path, task, settings, device, prompts, mapping=mapping, seed=seed, answer=which
        )
        opened = opening.load()
        subject = opening.subject(opened)
        if member is not None:
            from mechint.models.members import of_member
            from mechint.models.transformer import HookedTransformer

            if not isinstance(opened.model, HookedTransformer):
                raise ParameterError(f"--member: {path} is no model of mechint's own")
            subject = load(of_member(opened.model, member), data=prompts)
        if claimed:
            program: Any = under
            if under is not None and under.rpartition(":")[0].endswith(".py"):
                program = _function("--program", *under.rsplit(":", 1))
            found = [
                audit(
                    subject,
                    *_claims(text, subject, parse_claim),
                    seed=seed,
                    examples=n,
                    program=program,
                )
                for text in claimed
            ]
        else:
            found = propose(subject, family=family, seed=seed, examples=n)
        apart = _rivals(subject, found[0], seed, n)
    audits = [one.to_dict() for one in found]
    if as_json:
        shown = None if apart is None else apart.to_dict()
        print_json({"schema": 3, "path": str(path), "audits": audits, "rivals": shown})
    else:
        from mechint.account.audits import audits_text
        from mechint.account.terminal import command_lines

        screen = console()
        heading = one_line(f"{title_of(subject)}   {path}")
        screen.print(audits_text(found, heading, screen.width), soft_wrap=True)
        if apart is not None:
            screen.print()
            _print(str(apart), 4)
            given = [str(path), *(["--task", task] if task else [])]
            given += [word for one in settings for word in ("--set", one)]
            for line in apart.next:
                command = f"mechint explain {shlex.join(given)} {line.partition('  # ')[0]}"
                for part in command_lines(command, screen.width):
                    screen.print(part, markup=False, highlight=False, soft_wrap=True)
    if out is not None:  # last: what was measured is said even where the file cannot be written
        _write(out, subject, found[0], seed, n)
    return 0


def _compare(openings: Sequence[Opening], family: str | None, n: int, as_json: bool) -> int:
    """Print the best explanation of two models, and whether each is one of the other."""
    with spinner("explaining both models"):
        from mechint.explanation import compare

        first, second = (opening.subject(opening.load()) for opening in openings)
        found = compare(first, second, family=family, seed=openings[0].seed, examples=n)
    paths = [str(one.path) for one in openings]
    audits = [found.first, found.second]
    if as_json:
        shown = [one.to_dict() for one in audits]
        print_json({"schema": 3, "paths": paths, "audits": shown, "programs": found.to_dict()})
        return 0
    from mechint.account.audits import audits_text

    screen = console()
    for letter, path, one in zip("AB", paths, audits, strict=True):
        screen.print(audits_text([one], one_line(f"{letter}  {path}"), screen.width))
        screen.print()
    _print(str(found), 2)
    if found.alike is not None:
        _print(f"They give the same answer to {found.alike:.1%} of these inputs.", 2)
    return 0


def _over_steps(
    path: Path, family: str | None, seed: int, answer: Any, n: int, as_json: bool
) -> int:
    """One line per checkpoint of a run, and since when its program stands; the exit status."""
    from mechint.explanation.table import last_over_steps, last_program, steps_lines
    from mechint.run_table import runs
    from mechint.system.jsonable import to_jsonable

    with counting("explaining") as report:
        asked = {"family": family, "seed": seed, "answer": answer, "examples": n}
        table = runs(path).over_steps().explain(**asked)
        if as_json:
            shown = {"schema": 1, "path": str(path), "rows": table.rows(report)}
            print_json(
                to_jsonable({**shown, "last_program": last_over_steps(table.entries, **asked)})
            )
            return 0
        for line in steps_lines(table.each(report)):
            _print(line, 43 if line[:1] == " " else 2)
        if said := last_program(last_over_steps(table.entries, **asked)):
            _print(f"\n{said}", 2)
    return 0


def _print(line: str, indent: int) -> None:
    """Print a line, wrapped between words and then indented."""
    from mechint.account.terminal import wrap_line

    screen = console()
    for part, _ in wrap_line(line, screen.width, "", " " * indent):
        screen.print(part.rstrip(), markup=False, highlight=False, soft_wrap=True)


def _rivals(subject: Any, best: Audit, seed: int, n: int) -> Rivals | None:
    """The rival programs of the subject's task told apart; None where it answers at chance or its
    task has one program.
    """
    from mechint.explanation import rivals

    if len(subject.task.programs) < 2 or best.standing in ("refused", "untested"):
        return None
    parts = best.explanation.parts if best.standing != "wrong" else ()
    return rivals(subject, parts=parts, seed=seed, examples=n)


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


def _claims(text: str, subject: Any, parse_claim: Any) -> list[Any]:
    """The claims of one ``--claim``: a line, or what a function of a file gives for the subject."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py"):
        return [parse_claim(text)]
    found = _function("--claim", file, name)
    if isinstance(found, type):
        raise ParameterError(
            f"--claim {text}: {name} is a class; expected a function that takes the subject and "
            "gives a claim, a Part, a Route, an Explanation, or a list of claims"
        )
    try:
        made = found(subject)
    except MechintError:
        raise
    except (Exception, SystemExit) as error:
        raise ParameterError(f"--claim {text}: {type(error).__name__}: {error}") from error
    if made is None or (isinstance(made, list | tuple) and not made):
        raise ParameterError(f"--claim {text}: it gives no claim")
    return list(made) if isinstance(made, list | tuple) else [made]


def _sampled(text: str, n: int, seed: int) -> list[Any]:
    """The prompts that the function of ``--sample`` gives, as `mechint.load` takes them."""
    import inspect

    import numpy as np

    file, _, name = text.rpartition(":")
    if not file.endswith(".py"):
        raise ParameterError(f"--sample {text}: expected FILE.py:NAME")
    draw = _function("--sample", file, name)
    try:
        several = len(inspect.signature(draw).parameters) > 1
        made = draw(n, np.random.default_rng(seed)) if several else draw(n)
        rows = made.tolist() if hasattr(made, "tolist") else list(made)
    except (Exception, SystemExit) as error:
        raise ParameterError(f"--sample {text}: {type(error).__name__}: {error}") from error
    return [row if isinstance(row, dict) else {"prompt": row} for row in rows]


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
