"""``mechint compare``: two models side by side, and the program of each run on the other."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import click

from mechint.cli.analyze import measure, report_problems, write
from mechint.cli.common import (
    GroupedCommand,
    data_option,
    examples,
    model_options,
    out_option,
    print_json,
    probe_option,
    set_option,
    task_option,
)
from mechint.cli.opening import check_exist, check_options
from mechint.cli.verify import call_of
from mechint.errors import ParameterError
from mechint.system.progress import console, counting


@click.command(
    cls=GroupedCommand,
    short_help="Put two models side by side, and run the program of each on the other.",
    epilog=examples(
        "mechint compare runs/seed-0 runs/seed-1",
        "mechint compare clock.pt pizza.pt --out both.html",
        "mechint compare first.pt second.pt --data prompts.jsonl",
    ),
)
@click.argument("paths", metavar="A B", nargs=-1, required=True, type=click.Path(path_type=Path))
@probe_option
@task_option
@set_option
@data_option
@out_option
@model_options
def compare(paths: tuple[Path, ...], **given: Any) -> int:
    """Run probes on two models and say in at most six rows what differs; of two models of one task,
    audit the best program of each on the other: do they run the same one, up to the heads that run
    it?
    """
    if len(paths) != 2:
        said = f"compare: is for two models, got {len(paths)}; mechint "
        more = "table PATH… is a row of each" if len(paths) > 2 else "analyze PATH is for one"
        raise ParameterError(said + more)
    check_options(given)
    check_exist(paths)
    found = [measure(path, given) for path in paths]
    with counting("comparing programs"):
        from mechint.account import accounts_json
        from mechint.account.account import compare_programs
        from mechint.account.brief import brief_of_two

        first, second = (opening.subject for opening, *_ in found)
        programs, said = compare_programs(first, second, seed=given["seed"])
    accounts = [dataclasses.replace(account, next=()) for _, account, _ in found]
    if programs is not None:
        best = programs.first, programs.second
        accounts = [one.explained([it]) for one, it in zip(accounts, best, strict=True)]
    problems = [problem for *_, some in found for problem in some]
    if out := given["out"]:
        from mechint.report import comparison_page

        more, places = f"--out {shlex.quote(str(out))}", shlex.join(map(str, paths))
        command = found[0][0].command(more, probes=given["names"], places=places, verb="compare")
        problems += write(comparison_page(accounts, command, said), given)
    if given["brief"]:
        print_json({**brief_of_two(accounts, said), "verify": call_of(paths)})
    elif given["as_json"]:
        crossed = {"sentence": said} if programs is None else programs.to_dict()
        whole = {**accounts_json(accounts), "programs": crossed}
        print_json({**whole, "verify": call_of(paths)})
    else:
        from mechint.account.terminal import comparison_text

        screen = console()
        screen.print(comparison_text(accounts, screen.width, said), soft_wrap=True)
    return report_problems(problems)
