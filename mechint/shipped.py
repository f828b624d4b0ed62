"""The examples that come with mechint: trained models, and scripts in ``# %%`` cells.

    subject = mechint.load(mechint.example("clock.pt"))
    copy_examples("examples")                       # what ``mechint examples examples`` does

They lie in the installed package, or in the checkout beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

from mechint.errors import RunError, UnknownNameError
from mechint.system.files import make_directory, write_bytes


def example(name: str) -> Path:
    """Path of a model that comes with mechint, for `mechint.load`.

    Raises:
        UnknownNameError: there is no such model.

    >>> example("clock.pt").name
    'clock.pt'
    """
    models = {
        path.name: path
        for path in sorted((_beside("examples", "examples") / "models").glob("*.pt"))
    }
    if name not in models:
        raise UnknownNameError.of("model that comes with mechint", name, models)
    return models[name]


def copy_examples(out: str | Path, force: bool = False) -> list[Path]:
    """Copy scripts, models and prompts under `out`; paths of all files.

    force: replace files that are there and differ.

    Raises:
        RunError: a file that is there differs, or cannot be written.
    """
    source, folder = _beside("examples", "examples"), Path(out)
    files = {
        folder / path.relative_to(source): path.read_bytes()
        for pattern in ("README.md", "*.py", "models/*.pt", "language-model/*.jsonl")
        for path in source.glob(pattern)
    }
    there = {path for path in files if path.exists()}
    different = [path for path in there if not path.is_file() or path.read_bytes() != files[path]]
    if different and not force:
        raise RunError(
            f"{min(different)}: is there already and differs; choose another folder, or replace it "
            "with --force"
        )
    for path, content in files.items():
        make_directory(path.parent)
        write_bytes(path, content)
    return [*files]


def glossary() -> dict[str, str]:
    """Word → what it means here, as in the glossary of the docs.

    >>> glossary()["together"]
    'the components were edited at once; nothing is said of each'
    """
    text = _beside("glossary.md", "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", text, re.M)[2:]
    return {word: meaning for words, meaning in rows for word in words.split(", ")}


def skill() -> str:
    """The page by which a program or an agent uses mechint."""
    return _beside("skill.md", "docs/skill.md").read_text(encoding="utf-8")


def _beside(installed: str, checkout: str) -> Path:
    """A file of the installed package, or of the checkout beside it."""
    own = Path(__file__).parent / installed
    return own if own.exists() else Path(__file__).parents[1] / checkout
