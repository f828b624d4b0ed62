"""Two models compared by their programs: seeds, heads in another order, another program, steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import mechint
from benchmarks.induced import plant
from mechint.cli import main
from mechint.explanation import Explanation, Route, carry, compare, explain
from mechint.explanation.standing import Audit
from mechint.interventions import Site
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject

MAXIMUM = Path(__file__).parents[2] / "examples" / "models" / "maximum.pt"


@pytest.fixture(scope="module")
def largest() -> Subject:
    rows = torch.cartesian_prod(*[torch.arange(16)] * 4)[::50].tolist()
    return mechint.load(MAXIMUM, data=[{"prompt": row} for row in rows])


def edited(subject: Subject, **weights: torch.Tensor) -> Subject:
    """The subject with some weights in place of its own, asked by the same prompts."""
    model = HookedTransformer(subject.model.config)
    own = {k: v.detach() for k, v in subject.model.named_parameters()}
    model.load_state_dict(own | weights, strict=False)
    prompts = [{"prompt": row} for row in subject.data.tokens.tolist()]
    return mechint.load(model.requires_grad_(False).eval(), data=prompts)


def test_another_program_is_different(largest: Subject) -> None:
    """The model with its symbols in the reverse order gives the smallest: 15 - max(15 - t)."""
    own = dict(largest.model.named_parameters())
    upside = {name: own[name].detach().flip(dim) for name, dim in
              (("embed.W_E", 0), ("unembed.W_U", 1))}  # fmt: skip
    upside |= {"unembed.b_U": own["unembed.b_U"].detach().flip(0)} if "unembed.b_U" in own else {}
    smallest = edited(largest, **upside)
    assert torch.equal(smallest.targets.flatten().cpu(), smallest.data.tokens.amin(1).cpu())
    found = compare(largest, smallest)
    assert found.first.explanation.name == "answer = max(t)"
    assert found.second.explanation.name == "answer = min(t)"
    assert found.verdict == "different"
    assert found.on_second is not None and found.on_second.value("coverage") < 0.2


def test_a_program_at_sites_that_the_other_model_lacks_is_refused() -> None:
    clock = mechint.load(MAXIMUM.parent / "clock.pt")
    found = explain(clock)[0]
    (first, *rest), route = found.explanation.parts, Route("attends", 0, (4,))
    deep = replace(first, site=Site("blocks.1.hook_resid_post", "answer"))
    for more, lacks in (
        ({"parts": (deep, *rest)}, "L1 resid_post"),
        ({"routes": (route,)}, "L0H4"),
    ):
        there = carry(replace(found, explanation=replace(found.explanation, **more)), clock)
        assert there.standing == "refused" and f"the model has no {lacks}" in there.reason


def test_models_of_different_tasks_are_not_compared() -> None:
    names = ("clock", "pizza", "maximum")
    models = [mechint.load(mechint.example(f"{name}.pt")) for name in names]
    programs = [next(iter(one.task.programs.values())) for one in models]
    stands = [Audit(Explanation("the task's own", one), "stands") for one in programs]
    for a, b in ((1, 0), (0, 2), (2, 1)):
        found = compare(models[a], models[b], found=(stands[a], stands[b]))
        assert str(found) == "Different tasks: not compared."
        assert (found.verdict, found.on_second, found.on_first) == ("untested", None, None)
    assert compare(models[0], models[0], found=(stands[0], stands[0])).on_second is not None


def test_heads_in_another_order_run_the_same_program() -> None:
    """A plant whose two heads bring different tokens, and the same with its heads exchanged."""
    number = next(n for n in range(30) if plant(n).subject.model_description.n_heads == 2)
    first = plant(number).subject
    own = {k: v.detach() for k, v in first.model.named_parameters()}
    turned = {k: v.flip(0) for k, v in own.items() if ".attn." in k and v.shape[0] == 2}
    second = edited(first, **turned)
    found = compare(edited(first), second)
    assert found.verdict == "same" and found.alike == 1.0
    heads = [sorted(str(one)[:4] for one in audit.explanation.routes) for audit in
             (found.first, found.on_second) if audit is not None]  # fmt: skip
    assert heads == [["L0H0", "L0H1"]] * 2
    assert "at other heads" in str(found)
    assert found.first.explanation.routes != found.second.explanation.routes


def test_an_untrained_model_runs_no_program_of_another(largest: Subject) -> None:
    untrained = largest.untrained(0)
    found = compare(largest, untrained)
    assert found.verdict == "different" and found.on_first is None
    assert compare(untrained, untrained).verdict == "untested"


@pytest.mark.full
def test_commands_compare_two_models(tmp_path: Path, largest: Subject) -> None:
    data = tmp_path / "p.jsonl"
    rows = largest.data.tokens.tolist()
    data.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    given = [str(MAXIMUM), str(MAXIMUM), "--data", str(data)]

    def said(*command: str) -> Any:
        ran = CliRunner().invoke(main, [*command])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout) if "--json" in command else ran.stdout

    page = tmp_path / "both.html"
    found = said("compare", *given, "--json", "--out", str(page), "--light")
    assert found["programs"]["verdict"] == "same" and len(found["accounts"]) == 2
    assert found["programs"]["a_on_b"]["standing"] == "stands"
    assert "run the same program" in page.read_text()
    clock = str(MAXIMUM.with_name("clock.pt"))
    assert "Different tasks" in said("compare", str(MAXIMUM), clock, "--probe", "norms")


@pytest.mark.full
def test_the_last_program_is_audited_over_training(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("n=8", "length=3", "steps=600", "checkpoints=linear", "n_checkpoints=3")
    more = ("n_heads=1", "attn_only=true", "d_model=32", "lr=4e-3", "seed=3")
    command = ["train", "max-of-list", "--out", str(run)]
    command += [part for text in (*settings, *more) for part in ("--set", text)]
    assert CliRunner().invoke(main, command).exit_code == 0
    shown = ["table", str(run), "--over-steps", "--explain"]
    rows = json.loads(CliRunner().invoke(main, [*shown, "--json"]).stdout)["last_program"]
    assert rows[-1]["standing"] == "stands" and rows[0]["standing"] not in ("stands", "superfluous")
    assert "The program of the last step" in CliRunner().invoke(main, shown).stdout
    last = explain(mechint.load(run), family="induced")[0]
    assert carry(last, mechint.load(run)).standing == "stands"
