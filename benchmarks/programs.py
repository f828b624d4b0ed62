"""The programs of small models: `mechint explain --family induced` over the examples and a folder
of models that others trained, each asked by prompts or by the data of its task alone.

    python -m benchmarks.programs CHECKPOINTS --out docs/generated

The page is written as ``programs-of-models.md``. Models that are not in the folder are left out.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import in_words, made
from mechint.decide.words import STANDINGS
from mechint.errors import MechintError, first_line
from mechint.system.files import write_text

EXAMPLES = Path(__file__).parents[1] / "examples" / "models"
N = 3000
"""Prompts of a model, at most."""
LONGEST = 90
"""Letters of a program or reason in the table."""

FRESH = 1000
"""Further prompts on which a program that stands is held against a solver written by hand."""

Draw = Callable[[np.random.Generator], Sequence[int]]
Solver = Callable[[list[int]], int]


@dataclass(frozen=True)
class Asked:
    """A model and the prompts that it is asked by; published: what its authors say that it does.

    solver: the answer to a prompt, written by hand; None where what the model gives is not known.
    member: of a model that answers with a set, the symbol of which is asked whether it is in it.
    """

    file: str
    prompts: str
    draw: Draw
    published: str
    solver: Solver | None = None
    member: int | None = None

    @property
    def name(self) -> str:
        """The file without its ending."""
        return self.file.removesuffix(".pt")


def _numbers(draw: np.random.Generator, n: int) -> list[int]:
    return draw.permutation(150)[:n].tolist()


def _bits(draw: np.random.Generator, n: int) -> list[int]:
    return (draw.random(n) < draw.random()).astype(int).tolist()


def _sort(draw: np.random.Generator, done: int = 0) -> list[int]:
    values = _numbers(draw, 8)
    return [150, *values, 151, *sorted(values)[:done]]


def _copy(draw: np.random.Generator, length: int = 0, backwards: bool = False) -> list[int]:
    values = _numbers(draw, length or int(draw.integers(6, 11)))
    done = values[::-1] if backwards else values
    return [150, *values, 151, *done[: 12 - len(values)]]


def _interleaved(draw: np.random.Generator) -> list[int]:
    columns = [_bits(draw, 5) for _ in range(3)]
    return [2, *(bit for row in zip(*columns, strict=True) for bit in row), 3]


def _count(draw: np.random.Generator, done: int = 0) -> list[int]:
    first, last = sorted(draw.permutation(140)[:2].tolist())
    last = max(last, first + done)
    return [150, first, last, 151, *range(first, first + done)]


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


def _copied(t: list[int]) -> int:
    """The number after the one that was copied last, or the end mark."""
    values, done = t[1 : t.index(151)], t[t.index(151) + 1 :]
    return [*values, 152][len(done)]


def _reversed(t: list[int]) -> int:
    """The number before the one that was copied last, or the end mark."""
    values, done = t[1 : t.index(151)], t[t.index(151) + 1 :]
    return [*values[::-1], 152][len(done)]


def _majority(bits: list[int]) -> int:
    return int(2 * sum(bits) > len(bits))


def _sum(t: list[int]) -> int:
    return 10 * t[0] + t[1] + 10 * t[3] + t[4]


ZOO = "decompiling_transformers (2602.08857)"
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
    Asked(
        "hf-zoo/sort-1l1h256d3lr01drop",
        "eight numbers, first answer",
        _sort,
        f"sort; {ZOO}",
        lambda t: min(t[1:9]),
    ),
    Asked(
        "hf-zoo/sort-1l1h256d3lr01drop",
        "eight numbers, fourth answer",
        lambda d: _sort(d, 3),
        f"sort; {ZOO}",
        lambda t: sorted(t[1:9])[3],
    ),
    Asked(
        "hf-zoo/unique_copy-2l1h64d3lr01drop", "six to ten numbers", _copy, f"copy; {ZOO}", _copied
    ),
    Asked(
        "hf-zoo/unique_copy-2l1h64d3lr01drop",
        "eight numbers",
        lambda d: _copy(d, 8),
        f"copy; {ZOO}",
        _copied,
    ),
    Asked(
        "hf-zoo/unique_reverse-2l1h64d3lr01drop",
        "six to ten numbers",
        lambda d: _copy(d, 0, True),
        f"reverse; {ZOO}",
        _reversed,
    ),
    Asked(
        "hf-zoo/bin_majority-1l1h16d3lr01drop",
        "15 bits",
        lambda d: [2, *_bits(d, 15), 3],
        f"majority; {ZOO}",
        lambda t: _majority(t[1:16]),
    ),
    Asked(
        "hf-zoo/bin_majority_interleave-2l2h16d3lr00drop",
        "3 × 5 bits, first answer",
        _interleaved,
        f"majority of every third; {ZOO}",
        lambda t: _majority(t[1:16:3]),
    ),
    Asked(
        "hf-zoo/count-1l4h256d4lr01drop",
        "two numbers, first answer",
        _count,
        f"count; {ZOO}",
        lambda t: t[1],
    ),
    Asked(
        "hf-zoo/count-1l4h256d4lr01drop",
        "two numbers, fourth answer",
        lambda d: _count(d, 3),
        f"count; {ZOO}",
        lambda t: 152 if t[-1] == t[2] else t[-1] + 1,
    ),
    Asked(
        "hf-zoo/addition-4l2h64d3lr00drop",
        "two numbers of three bits",
        lambda d: [3, *_bits(d, 3), 2, *_bits(d, 3), 4],
        f"addition, 50% right; {ZOO}",
    ),
)


def _dyck(draw: np.random.Generator, depth: int) -> list[int]:
    """Brackets that may go on, of 10 to 19."""
    row, open_ = [2], 0
    for _ in range(int(draw.integers(10, 20))):
        opens = open_ == 0 or (open_ < depth and draw.random() < 0.5)
        row.append(0 if opens else 1)
        open_ += 1 if opens else -1
    return row


def _string(draw: np.random.Generator) -> list[int]:
    return [2, *draw.integers(0, 2, int(draw.integers(8, 13))).tolist()]


def _parted(draw: np.random.Generator) -> list[int]:
    """As and bs, and of half of the prompts a d with bs and cs behind it."""
    before, behind = draw.integers(0, 2, int(draw.integers(1, 12))), draw.integers(1, 3, 11)
    return [
        4,
        *before.tolist(),
        *([3, *behind[: draw.integers(0, 12)].tolist()] * (draw.random() < 0.5)),
    ]


def _depth(t: list[int]) -> int:
    return t[1:].count(0) - t[1:].count(1)


LANGUAGES: tuple[Asked, ...] = tuple(
    Asked(
        f"hf-zoo/bce_{name}", f"{words}; is {symbol} in the set?", draw, f"{what}; {ZOO}", solver,
        symbol,
    )
    for name, words, draw, what, answers in (
        (
            "D2-1l1h16d3lr00drop", "brackets of depth 2", lambda d: _dyck(d, 2), "Dyck, depth 2",
            {0: lambda t: int(_depth(t) < 2), 1: lambda t: int(_depth(t) > 0),
             4: lambda t: int(_depth(t) == 0)},
        ),
        (
            "D3-1l1h16d4lr00drop", "brackets of depth 3", lambda d: _dyck(d, 3), "Dyck, depth 3",
            {0: lambda t: int(_depth(t) < 3), 1: lambda t: int(_depth(t) > 0),
             4: lambda t: int(_depth(t) == 0)},
        ),
        ("tomita1-1l1h16d3lr00drop", "8 to 12 bits", _string, "1*", {1: None}),
        (
            "tomita2-1l1h16d3lr00drop", "8 to 12 bits", _string, "(10)*",
            {0: lambda t: t[-1], 1: lambda t: 1 - t[-1]},
        ),
        ("tomita4-2l2h16d3lr01drop", "8 to 12 bits", _string, "no 000", {0: None, 1: None}),
        ("tomita7-2l1h16d3lr01drop", "8 to 12 bits", _string, "0*1*0*1*", {0: None}),
        (
            "aastar-1l2h16d3lr01drop", "up to 140 as",
            lambda d: [1, *[0] * int(d.integers(0, 140))], "(aa)*", {3: lambda t: len(t) % 2},
        ),
        (
            "ab_d_bc-1l1h16d3lr01drop", "up to 22 letters", _parted, "[ab]*d[bc]*",
            {0: lambda t: int(3 not in t), 2: lambda t: int(3 in t), 3: lambda t: int(3 not in t),
             6: lambda t: int(3 in t)},
        ),
    )
    for symbol, solver in answers.items()
)  # fmt: skip
"""Models that answer with the set of symbols that a language allows next."""


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
# Programs of models

Each model is asked by prompts, or by the data of its task, and by nothing else: no family here
knows what it was trained for, and what is explained is its own answer. **program**: the answer as
Python over the tokens `t` up to the position that answers. **coverage**: its answers on natural
inputs that nothing was fitted to. **keeps**: the least that is left of the model's own answers,
above chance, under routing, interchange and composed inputs. **by hand**: of a program that stands,
the share of further prompts on which its file gives the answer of a solver written by hand (of a
task's data, its own answers). **standing**: as in
[Explanations](../explanations.md#programs-without-a-task), where tests and bounds are; a refusal
has its nearest miss. Of a product of two tokens that prompts alone show, **heads** has also what
the families say that know how products are computed. Seconds are of the processor, one thread,
without opening the file. Models of formal languages (`bce_*` of hf-zoo) answer with a set of
symbols: they are asked of one whether it is in the set.

    python -m benchmarks.programs CHECKPOINTS --out docs/generated

At most {N:,} distinct inputs, half of them fitted and half judged.
"""


def ask(path: Path, asked: Asked | Model) -> dict[str, Any]:
    """The program of one model as a row; "error" in place of it where it cannot be asked."""
    import mechint
    from mechint.explanation import explain
    from mechint.models.members import of_member

    row: dict[str, Any] = {"model": asked.name}
    try:
        if isinstance(asked, Asked):
            draw = np.random.default_rng(0)
            prompts = [{"prompt": [int(x) for x in asked.draw(draw)]} for _ in range(N)]
            subject: Any = mechint.load(path, data=prompts)
            if asked.member is not None:
                subject = mechint.load(of_member(subject.model, asked.member), data=prompts)
            row |= {"asked": asked.prompts, "published": asked.published}
        else:
            given = dict(asked.settings)
            subject = mechint.load(path, task=asked.task, model=dict(asked.model), **given)
            subject = subject if asked.answer is None else subject.with_answer(asked.answer)
            row |= {"asked": subject.task.title, "published": ""}
        start = time.process_time()
        # of prompts it is the only family, and others are asked about a product that it finds
        family = None if isinstance(asked, Asked) else "induced"
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
        "by hand": by_hand(subject, asked, best),
        "standing": best.standing,
        "reason": best_reason,
        "program": best.explanation.name if best.standing != "refused" else "",
        "routes": [str(one) for one in best.explanation.routes],
        "by group": [f"{one.explanation.name} {one.standing}" for one in by_group],
        "coverage": near.value("coverage"),
        "keeps": 1 - near.unaccounted["accuracy"] if near.unaccounted else float("nan"),
        "s": seconds,
    }


def by_hand(subject: Any, asked: Asked | Model, found: Any) -> tuple[float, int] | None:
    """Share of prompts, and their number, on which the file of a program that stands gives what a
    solver written by hand gives: on further prompts, or on the data of a task its own answers.
    """
    if found.standing != "stands":
        return None
    names: dict[str, Any] = {"__name__": "program"}
    exec(found.explanation.to_python(subject), names)  # noqa: S102
    if isinstance(asked, Asked):
        if asked.solver is None:
            return None
        draw = np.random.default_rng(1)
        rows = [[int(x) for x in asked.draw(draw)] for _ in range(FRESH)]
        right = [asked.solver(row) for row in rows]
    else:
        places = subject.answer_positions.tolist()[:FRESH]
        tokens = subject.data.tokens[:FRESH].tolist()
        rows = [row[: at + 1] for row, at in zip(tokens, places, strict=True)]
        right = subject.targets[:FRESH].flatten().tolist()
    same = [names["answer"](row) == one for row, one in zip(rows, right, strict=True)]
    return float(np.mean(same)), len(same)


ORDER = (*STANDINGS, "not asked")
"""Standings in the order of the page."""
COMMAND = "python -m benchmarks.programs CHECKPOINTS --out docs/generated"


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page of rows."""
    rows = sorted(rows, key=lambda row: ORDER.index(_standing(row)))
    counts = Counter(map(_standing, rows))
    said = ", ".join(f"{name} {counts[name]}" for name in ORDER if counts[name])
    slowest = max((row["s"] for row in rows if "s" in row), default=0.0)
    lines = [NOTE, f"{len(rows)} models and forms of prompts: {said}. The slowest took "
             f"{slowest:.1f} s of processor time.\n"]  # fmt: skip
    heading = (
        "model",
        "asked by",
        "standing",
        "program",
        "heads",
        "coverage",
        "keeps",
        "by hand",
        "s",
        "published",
    )
    lines += ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    for row in rows:
        if "error" in row:
            cells = [f"`{row['model']}`", row.get("asked", ""), "not asked", _cell(row["error"])]
            lines.append(
                "| " + " | ".join([*cells, "", "", "", "", "", row.get("published", "")]) + " |"
            )
            continue
        program = f"`{row['program'].removeprefix('answer = ')}`" if row["program"] else ""
        reason = f" {_cell(row['reason'])}" if row["reason"] else ""
        cells = [
            f"`{row['model']}`",
            _cell(row["asked"]),
            row["standing"],
            (program.replace("|", "\\|") + reason).strip(),
            _cell("; ".join([*row["routes"], *row["by group"]])),
            f"{row['coverage']:.3f}" if row["coverage"] == row["coverage"] else "",
            f"{row['keeps']:.3f}" if row["keeps"] == row["keeps"] else "",
            "" if row["by hand"] is None else "{:.3f} of {:,}".format(*row["by hand"]),
            f"{row['s']:.1f}",
            _cell(row["published"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", in_words(made(COMMAND))]).lstrip() + "\n"


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
    for asked in (*ASKED, *LANGUAGES, *PUBLISHED):
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
