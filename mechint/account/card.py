"""A model as a folder that others can open: weights, configuration, and its account as the card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mechint
from mechint.account.account import Account, analyze
from mechint.account.terminal import account_text
from mechint.checkpoints.reader import Assumption
from mechint.checkpoints.save import FORMAT, save_checkpoint
from mechint.errors import CheckpointError, RunError
from mechint.models import kind_of
from mechint.subject import Subject
from mechint.system.files import make_directory, write_text

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def save_pretrained(
    subject: Subject, out: str | Path, account: Account | None = None, *, force: bool = False
) -> Path:
    """Write `subject` as a folder: ``model.safetensors``, ``config.json``, and ``README.md``, a
    model card that is its account. `mechint.load` opens the folder; its task comes with it.

    Args:
        account: the account that is written; that of all quick probes when None.
        force: replace files of these names.

    Returns:
        The folder.

    Raises:
        CheckpointError: a model that is not of mechint's architectures.
        RunError: a file of these names is there, or the folder cannot be written.
    """
    folder, model = Path(out), subject.model
    if not hasattr(model, "weights") or not hasattr(model, "config"):
        raise CheckpointError(
            f"a {type(model).__name__} is not one of mechint's architectures; save it by its own "
            "library"
        )
    there = [name for name in (WEIGHTS, CONFIG, CARD) if (folder / name).exists()]
    if there and not force:
        raise RunError(
            f"{folder / there[0]}: is there already; choose another folder, or give force=True"
        )
    account = analyze(subject) if account is None else account
    known = subject.provenance["checkpoint"]
    seed = known.get("seed", None if subject.on_grid and not subject.split else subject.split_seed)
    make_directory(folder)
    save_checkpoint(
        folder / WEIGHTS,
        config=model.config,
        weights=model.weights(),
        task=subject.task,
        step=known.get("step"),
        metrics=known.get("metrics") or {},
        seed=seed,
        assumed={
            name: Assumption(one["value"], one["why"])
            for name, one in known.get("assumed", {}).items()
        },
        split=known.get("split"),
    )
    stated = {
        "format": FORMAT,
        "kind": kind_of(model.config),
        "config": model.config.to_dict(),
        "task": subject.provenance["task"],
        "versions": {"mechint": mechint.__version__},
    }
    write_text(folder / CONFIG, json.dumps(stated, indent=1) + "\n")
    write_text(folder / CARD, card_of(account))
    return folder


def card_of(account: Account) -> str:
    """The account as a model card: front matter, verdict, evidence, and how to open the model."""
    shown = replace(account, path="", next=())  # neither is of the reader's machine
    tags = ("mechint", "mechanistic-interpretability")
    return "\n".join(
        [
            "---",
            "library_name: mechint",
            "tags:",
            *(f"- {tag}" for tag in tags),
            "---",
            "",
            f"# {account.title}",
            "",
            f"**{account.verdict}**" + (f" ({account.limits})" if account.limits else ""),
            "",
            "```",
            account_text(shown, 100).plain,
            "```",
            "",
            "Each finding stands beside the null that it was held against. To open the model, in "
            "the folder of this file:",
            "",
            "```python",
            "import mechint",
            "",
            'subject = mechint.load(".")',
            "print(mechint.analyze(subject))",
            "```",
            "",
            f"Written by mechint {mechint.__version__}.",
            "",
        ]
    )
