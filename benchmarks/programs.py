"""The programs of small models: `mechint explain --family induced` over the examples and a folder
of models that others trained, each asked by prompts or by the data of its task alone.

    python -m benchmarks.programs CHECKPOINTS --out docs/generated

The page is written as ``programs-of-models.md``. Models that are not in the folder are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import in_words, made
from mechint.decide.words import STANDINGS
from mechint.errors import MechintError, first_line
from mechint.explanation.source_program import WHATEVER
from mechint.system.files import write_text

EXAMPLES = Path(__file__).parents[1] / "examples" / "models"
N = 3000
"""Prompts of a model, at most."""
LONGEST = 90
"""Letters of a program or reason in the table."""

ZOO, MATCH = "hf-zoo", 0.9
"""Folder of the models of decompiling_transformers, and the share of the answers that counts there.
"""
FRESH = 1000
"""Further prompts on which a program that stands is held against a solver written by hand."""

Draw = Callable[[np.random.Generator], Sequence[int]]
Solver = Callable[[list[int]], int]


@dataclass(frozen=True)
class Asked:
    """A model and the prompts that it is asked by; published: what its authors say that it does.

    solver: the answer to a prompt, written by hand.
    """

    file: str
    prompts: str
    draw: Draw
    published: str
    solver: Solver

    @property
    def name(self) -> str:
        """The file without its ending."""
        return self.file.removesuffix(".pt")


def _puzzle(draw: np.random.Generator) -> list[int]:
    row = [11] * 11
    row[0], row[10] = 10, 12
    row[1:10:2] = draw.integers(0, draw.integers(1, 11), 5).tolist()
    return row


def _digits(draw: np.random.Generator, place: int) -> list[int]:
    a, b = draw.integers(0, 50, 2).tolist()
    tens = [(a + b) // 10] if place else []
    return [a // 10, a % 10, 10, b // 10, b % 10, 11, *tens]


def _repeats(draw: np.random.Generator) -> list[int]:
    row, segment = draw.integers(0, 20, 24), draw.permutation(20)[:8]
    n = int(draw.integers(2, 7))
    start = int(draw.integers(0, 24 - 8 - n))
    row[start : start + 8] = segment
    row[24 - n :] = segment[:n]
    return row.tolist()


def _four(draw: np.random.Generator) -> list[int]:
    return draw.integers(0, 16, 4).tolist()


def _pair(draw: np.random.Generator) -> list[int]:
    return [*draw.integers(0, 29, 2).tolist(), 29]


# --- solvers, of none of which the search knows ---------------------------------------------------
def _repeated(t: list[int]) -> int:
    """What followed the last two tokens the last time, else the last one."""
    for i in range(len(t) - 2, 0, -1):
        if t[i - 1 : i + 1] == t[-2:]:
            return t[i + 1]
    earlier = [i for i, x in enumerate(t[:-1]) if x == t[-1]]
    return t[earlier[-1] + 1]


def _sum(t: list[int]) -> int:
    return 10 * t[0] + t[1] + 10 * t[3] + t[4]


ASKED: tuple[Asked, ...] = (
    Asked("examples/maximum.pt", "four numbers", _four, "shipped", max),
    Asked("examples/induction.pt", "tokens with a repeat", _repeats, "shipped", _repeated),
    Asked(
        "examples/digits.pt",
        "ab+cd=, tens",
        lambda d: _digits(d, 0),
        "shipped",
        lambda t: _sum(t) // 10,
    ),
    Asked(
        "examples/digits.pt",
        "ab+cd=, units",
        lambda d: _digits(d, 1),
        "shipped",
        lambda t: _sum(t) % 10,
    ),
    Asked("examples/clock.pt", "x, y, =", _pair, "shipped", lambda t: (t[0] + t[1]) % 29),
    Asked(
        "mapping/max_of_list_other_names.pt",
        "five numbers between marks",
        _puzzle,
        "April puzzle: one head at the maximum, three that fire at 8, 9 and 6 or more",
        lambda t: max(t[1:10:2]),
    ),
)


@dataclass(frozen=True)
class Drawn:
    """A model and the prompts that its authors drew, with their answers; or of a model that answers
    with a set, whether `member` is in it.
    """

    file: str
    path: Path
    member: int | None = None

    @property
    def name(self) -> str:
        """The file, with the symbol."""
        return self.file if self.member is None else f"{self.file}, {self.member} in the set"

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The prompts."""
        with gzip.open(self.path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @property
    def prompts(self) -> list[list[int]]:
        """Prompts of the lengths that the model was trained on."""
        return [row["prompt"] for row in self.rows if not row.get("far")]

    def answer(self, row: Mapping[str, Any]) -> int:
        """The answer that is right."""
        return row["answer"] if self.member is None else int(self.member in row["allowed"])

    @classmethod
    def of(cls, checkpoints: Path) -> Iterator[Drawn]:
        """Every model of a folder whose authors' prompts lie there; of sets, each symbol apart."""
        for path in sorted((checkpoints / ZOO / "prompts").glob("*.jsonl.gz")):
            file = f"{ZOO}/{path.name.removesuffix('.jsonl.gz')}"
            whole = cls(file, path)
            if "allowed" not in whole.rows[0]:
                yield whole
                continue
            settings = json.loads((checkpoints / file / "config.json").read_text(encoding="utf-8"))
            yield from (cls(file, path, member) for member in range(settings["vocab_size"]))


@dataclass(frozen=True)
class Model:
    """A file with the task that it does not name, what it does not state of the model, and the
    answer that is explained, the last one when None.
    """

    file: str
    task: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: int | None = None

    @property
    def name(self) -> str:
        """The file without its ending, with the answer where one is named."""
        short = self.file.removesuffix("/model.pt").removesuffix("/tl_model.pt")
        short = short.removesuffix(".pt").removesuffix(".pth")
        return short if self.answer is None else f"{short}, answer {self.answer}"


def _group(*names: str) -> list[Model]:
    return [Model(f"rep-theory/{name}/model.pt") for name in names]


def _pizza(*names: str) -> list[Model]:
    return [Model(f"pizza/model_{name}.pt") for name in names]


ADDITION = {"task": "modular-arithmetic", "settings": {"p": 113}}
SUM = {"task": "digit-sum", "settings": {"digits": 4}}
PUBLISHED: tuple[Model, ...] = (
    *_pizza("p99zdpze5l", "18c9ev5v5p", "l8k1hzciux", "q9rsl94xlv", "hpv2jgskwe", "7r4zst7evs"),
    *_group("C113_T_seed1", "C113_T_seed2", "C113_MLP_seed1", "S5_T_seed1", "D61_T_seed1"),
    *_group("A5_T_seed1", "A5_T_seed3"),
    Model("progress-measures/wd_10-1_mod_addition_loss_curve.pth"),
    Model("progress-measures/low_precision_mod_addition.pth", **ADDITION),
    Model("progress-measures/induction_head_infinite.pth"),
    Model("bare-progress-measures/baseline.pt", **ADDITION),
    Model("rib/model_epoch_60000.pt"),
    *(Model("arena/sum_model.pt", **SUM, answer=answer) for answer in (-1, -2, -3, -4)),
    Model(
        "arena/brackets_model_state_dict.pt",
        "balanced-brackets",
        model={"attention_dir": "bidirectional"},
    ),
    *(
        Model(f"one-hot-addition/{name}.pth")
        for name in (
            "p_23_dmlp_512_ReLU_random_scale_0.1_decay_0-9800",
            "p_23_dmlp_512_Quad_single-freq_scale_0.02_decay_0-9800",
            "p_97_dmlp_1024_ReLU_random_scale_0.1_decay_0-4800",
        )
    ),
    Model("siit/palindromes.pt", "palindromes", {"n": 6, "half_length": 2}),
    Model(
        "tracr-pickled/make_hist/tl_model.pt",
        "rasp",
        {"program": "histogram", "n": 10, "length": 9},
    ),
    Model(
        "tracr-pickled/make_reverse/tl_model.pt",
        "rasp",
        {"program": "reverse", "n": 10, "length": 9},
    ),
)
"""Published models of which mechint knows a task with a program."""

NOTE = f"""
Each model is asked by prompts, or by the data of its task, and by nothing else: no family here
knows what it was trained for, and what is explained is its own answer. **program**: the answer as
Python over the tokens `t` up to the position that answers. **coverage**: its answers on natural
inputs that nothing was fitted to. **keeps**: the least that is left of the model's own answers,
above chance, under routing, interchange and composed inputs. **right**: of a program that stands,
the share of prompts on which its file gives the right answer: of further prompts, that of a solver
written by hand; of those of the authors, theirs; of a task's data, the model's own. **standing**:
as in [Explanations](../explanations.md#programs-without-a-task), where tests and bounds are; a
refusal has its nearest miss. Of a product of two tokens that prompts alone show, **heads** has also
what the families say that know how products are computed. Seconds are of the processor, one thread,
without opening the file.

Models of hf-zoo, of decompiling_transformers (2602.08857), are asked by prompts that their authors'
generator drew: of 0 to 50 tokens, at any answer, the first one included; what stands is held to
those of 51 to 100 tokens, too. Models of formal languages (`bce_*`) answer with a set of symbols,
and are asked of each whether it is in the set; programs of one answer to all are counted and not
listed.

    python -m benchmarks.programs CHECKPOINTS --out docs/generated

At most {N:,} distinct inputs, half of them fitted and half judged.
"""


def ask(path: Path, asked: Asked | Drawn | Model) -> dict[str, Any]:
    """The program of one model as a row; "error" in place of it where it cannot be asked."""
    import mechint
    from mechint.explanation import explain
    from mechint.models.members import of_member

    row: dict[str, Any] = {"model": asked.name, "file": asked.file, "asked": "its authors' prompts"}
    try:
        if isinstance(asked, Model):
            given = dict(asked.settings)
            subject: Any = mechint.load(path, task=asked.task, model=dict(asked.model), **given)
            subject = subject if asked.answer is None else subject.with_answer(asked.answer)
            row |= {"asked": subject.task.title}
        elif isinstance(asked, Drawn):
            prompts = [{"prompt": list(one)} for one in dict.fromkeys(map(tuple, asked.prompts))]
            model: Any = path
            if asked.member is not None:
                model = of_member(mechint.load(path).model, asked.member)
            subject = mechint.load(model, data=prompts)
        else:
            draw = np.random.default_rng(0)
            prompts = [{"prompt": [int(x) for x in asked.draw(draw)]} for _ in range(N)]
            subject = mechint.load(path, data=prompts)
            row |= {"asked": f"{asked.prompts}; {asked.published}"}
        start = time.process_time()
        # of prompts it is the only family, and others are asked about a product that it finds
        family = "induced" if isinstance(asked, Model) else None
        found = explain(subject, family=family, examples=N)
        by_group = [one for one in found if one.explanation.family not in ("induced", "none")]
        best, *others = [one for one in found if one not in by_group]
        if best.standing == "refused" and others:  # what was proposed and failed
            near = others[0]
            best_reason = f"nearest {near.explanation.name}: {near.reason}"
        else:
            near, best_reason = best, best.reason
    except MechintError as error:
        said = first_line(error, LONGEST * 2).replace(str(path), asked.name)
        return {**row, "error": said}
    seconds = time.process_time() - start
    return {
        **row,
        "right": right_of(subject, asked, best),
        "standing": best.standing,
        "reason": best_reason,
        "program": best.explanation.name if best.standing != "refused" else "",
        "routes": [str(one) for one in best.explanation.routes],
        "by group": [f"{one.explanation.name} {one.standing}" for one in by_group],
        "coverage": near.value("coverage"),
        "keeps": near.accounted.share if near.accounted else float("nan"),
        "s": seconds,
    }


def right_of(subject: Any, asked: Asked | Drawn | Model, found: Any) -> tuple[float, int] | None:
    """Share of prompts, and their number, on which the file of a program that stands gives the
    right answer; None of one that does not.
    """
    if found.standing != "stands":
        return None
    names: dict[str, Any] = {"__name__": "program"}
    exec(found.explanation.to_python(subject), names)  # noqa: S102
    if isinstance(asked, Asked):
        draw = np.random.default_rng(1)
        rows = [[int(x) for x in asked.draw(draw)] for _ in range(FRESH)]
        right = [asked.solver(row) for row in rows]
    elif isinstance(asked, Drawn):
        rows, right = [row["prompt"] for row in asked.rows], [*map(asked.answer, asked.rows)]
    else:
        places = subject.answer_positions.tolist()[:FRESH]
        tokens = subject.data.tokens[:FRESH].tolist()
        rows = [row[: at + 1] for row, at in zip(tokens, places, strict=True)]
        right = subject.targets[:FRESH].flatten().tolist()
    same = [names["answer"](row) == one for row, one in zip(rows, right, strict=True)]
    return float(np.mean(same)), len(same)


def of_whole_models(rows: Sequence[dict[str, Any]]) -> str:
    """A sentence on the models of hf-zoo: of how many every answer has a program, by the paper's
    criterion and by standing.
    """
    by_file: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["file"].startswith(f"{ZOO}/"):
            by_file.setdefault(row["file"], []).append(row)
    if not by_file:
        return ""
    match = sum(all(row.get("coverage", 0) >= MATCH for row in some) for some in by_file.values())
    stand = [name for name, some in by_file.items() if {*map(_standing, some)} == {"stands"}]
    members = [row for some in by_file.values() for row in some]
    right = [row["right"][0] for row in members if row.get("right")]
    names = ", ".join(f"`{name.partition('/')[2]}`" for name in stand)
    return (
        f"Of the {len(by_file)} files of hf-zoo {match} have programs that give {MATCH:.0%} of the "
        f"answers, the paper's criterion, by which it decompiles 26 of its 50 models; of "
        f"{len(stand)} all programs stand: {names}. Of {len(members)} programs, one for each "
        f"symbol of a set, {len(right)} stand, {sum(one == 1 for one in right)} of which are right "
        "on all prompts of the authors, those of 51 to 100 tokens included.\n"
    )


ORDER = (*STANDINGS, "not asked")
"""Standings in the order of the page."""
COMMAND = "python -m benchmarks.programs CHECKPOINTS --out docs/generated"


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page of rows."""
    whole = of_whole_models(rows)
    rows = [row for row in rows if not row.get("program", "").endswith(WHATEVER)]
    rows = sorted(rows, key=lambda row: ORDER.index(_standing(row)))
    counts = Counter(map(_standing, rows))
    said = ", ".join(f"{name} {counts[name]}" for name in ORDER if counts[name])
    slowest = max((row["s"] for row in rows if "s" in row), default=0.0)
    right = [row["right"][0] == 1 for row in rows if row.get("right")]
    lines = [
        "# Programs of models\n",
        f"{counts['stands']} of {len(rows)} models and forms of prompts have a program that "
        f"stands; of {len(right)} held to right answers {sum(right)} give all of them. By "
        f"standing: {said}; at most {slowest:.1f} s of processor time.\n",
        whole,
    ]
    heading = (
        "model",
        "standing",
        "program",
        "right",
        "coverage",
        "keeps",
        "asked by",
        "s",
        "heads",
    )
    lines += ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    for row in rows:
        model, asked = f"`{row['model']}`", _cell(row["asked"])
        if "error" in row:
            cells = [model, "not asked", _cell(row["error"]), "", "", "", asked, "", ""]
        else:
            program = f"`{row['program'].removeprefix('answer = ')}`" if row["program"] else ""
            reason = f" {_cell(row['reason'])}" if row["reason"] else ""
            cells = [
                model,
                row["standing"],
                (program.replace("|", "\\|") + reason).strip(),
                "" if row["right"] is None else "{:.3f} of {:,}".format(*row["right"]),
                f"{row['coverage']:.3f}" if row["coverage"] == row["coverage"] else "",
                f"{row['keeps']:.3f}" if row["keeps"] == row["keeps"] else "",
                asked,
                f"{row['s']:.1f}",
                _cell("; ".join([*row["routes"], *row["by group"]])),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, NOTE, in_words(made(COMMAND))]) + "\n"


def _standing(row: Mapping[str, Any]) -> str:
    return row.get("standing", "not asked")


def _cell(text: str) -> str:
    cut = text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST]}…"
    return cut.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def main() -> None:
    """Ask every model that is there, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/generated"))
    given = parser.parse_args()
    rows = []
    for asked in (*ASKED, *Drawn.of(given.checkpoints), *PUBLISHED):
        shipped = asked.file.startswith("examples/")
        path = EXAMPLES / Path(asked.file).name if shipped else given.checkpoints / asked.file
        if not path.exists():
            continue
        rows.append(ask(path, asked))
        told = rows[-1]
        print(
            told["model"],
            told.get("standing"),
            told.get("program"),
            told.get("reason", told.get("error")),
            flush=True,
        )
    write_text(given.out / "programs-of-models.md", page(rows))


if __name__ == "__main__":
    main()
