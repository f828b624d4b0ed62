"""``mechint verify``: run again what a JSON of mechint says, and name what differs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import mechint
from mechint.cli.common import PLUGINS, examples, path_option, plugin_option, print_error
from mechint.errors import ParameterError, one_line
from mechint.system.files import read_json

COMMANDS = ("analyze", "explain", "compare")
LEFT = {"--json", "--out", "--python", "--full", "--plugin", "--device", "--light", "--force"}
"""Options that a file may not give: what writes, runs code or is of a machine."""
FILES = ("--data", "--mapping")
CODE = re.compile(r"\.py:\w+$")
UNCOMPARED = {"path", "next", "verify", "mechint", "torch"}
"""Fields that are of a machine, or say what was run."""
WORDS = {"verdict", "standing", "lead"}
"""Fields whose text is compared as it stands, numbers included."""
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
CLOSE, TINY = 1e-3, 1e-6
"""The largest difference of two numbers, of the larger one; below the second they are rounding."""
SHOWN = 6
"""Differences that are named, at most."""


# --- what a result says of its making -------------------------------------------------------------
def call_of(paths: Sequence[Path]) -> dict[str, Any]:
    """The call of the current command on these models, as `verify` makes it again: options that
    differ from their defaults, and digests of the models, files and plug-ins.
    """
    context = click.get_current_context()
    options, files = dict[str, Any](), dict[str, Any]()
    for one in context.command.params:
        value, name = context.params.get(str(one.name)), one.opts[0]
        if not isinstance(one, click.Option) or name in LEFT or value in (None, (), False):
            continue
        if name in FILES:
            files[name] = _named(value)
        elif value != one.default:
            options[name] = list(value) if isinstance(value, tuple) else value
    return {
        "command": context.command.name,
        "options": options,
        "models": [_named(path) for path in paths],
        "files": files,
        "plugins": _plugins(context),
        "version": mechint.__version__,
    }


def _plugins(context: click.Context) -> list[dict[str, str]]:
    split = (text.rpartition(":") for text in context.meta.get(PLUGINS, ()))
    return [
        {"name": f"{Path(file).name}:{name}", "sha256": digest(Path(file))}
        for file, _, name in split
    ]


def _named(path: Path) -> dict[str, str]:
    return {"name": path.name if path.is_absolute() else str(path), "sha256": digest(path)}


def digest(path: Path) -> str:
    """The SHA-256 digest of a file; of a directory, of its weights, configuration and tokenizer."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    read = sorted(
        one
        for one in path.rglob("*")
        if one.suffix in (".pt", ".safetensors")
        or one.name in ("config.json", "tokenizer.json", "mapping.yaml")
    )
    held = [[one.relative_to(path).as_posix(), digest(one)] for one in read if one.is_file()]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


# --- the same again -------------------------------------------------------------------------------
@click.command(
    short_help="Run a result again from its JSON, and name what differs.",
    epilog=examples(
        "mechint analyze model.pt --json > result.json",
        "mechint verify result.json --model model.pt",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@path_option(
    "--model", "models", metavar="PATH", multiple=True, help="The model, where it lies here."
)
@plugin_option
def verify(file: Path, models: tuple[Path, ...]) -> int:
    """Run again what FILE, printed by analyze, explain or compare with --json or --brief, says, and
    compare: verdicts exactly, numbers to a thousandth or within their interval.

    A model, prompts and plug-ins are taken where their digests are those in the file; a plug-in is
    loaded only where it is given. Status 1 where something differs, 2 where it cannot be run.
    """
    stated = read_json(file, ParameterError)
    if stated is None:
        raise ParameterError(f"{file}: there is no such file")
    call = _checked(file, stated)
    given = list(models) or [_found(file, one) for one in call["models"]]
    plugins = _plugins(click.get_current_context())
    if call["plugins"] and not plugins:
        names = ", ".join(str(one["name"]) for one in call["plugins"])
        raise ParameterError(f"{file}: was made with {names}; give --plugin FILE.py:NAME")
    files = {name: _found(file, one) for name, one in call["files"].items()}
    for kind, wanted, here in (
        ("models", call["models"], [_named(one) for one in given]),
        ("files", list(call["files"].values()), [_named(one) for one in files.values()]),
        ("plugins", call["plugins"], plugins),
    ):
        said = [
            ", ".join(
                one["name"] * (kind == "plugins") + " sha256 " + one["sha256"][:16] for one in some
            )
            for some in (wanted, here)
        ]
        if said[0] != said[1]:
            print_error(f"differs: {kind}: {said[0]} in the file, {said[1]} here; not run")
            return 1
    words = [f"{name}={value}" for name, some in call["options"].items() for value in some]
    words += [f"{name}={path}" for name, path in files.items()]
    words = [word.removesuffix("=True") for word in words]
    brief = "--brief" in call["options"]
    out, verb = io.StringIO(), _command(call["command"])
    with contextlib.redirect_stdout(out):
        words += [] if brief else ["--json"]
        verb.main([*words, "--", *map(str, given)], prog_name="mechint", standalone_mode=False)
    wrong = list(differences(stated, json.loads(out.getvalue())))
    wrong.sort(key=lambda line: "settings" not in line)  # what the rest follows from
    for line in wrong[:SHOWN]:
        print_error(f"differs: {line}")
    if wrong:
        print_error(f"{len(wrong)} in all" if len(wrong) > SHOWN else "not what the file says")
        return 1
    click.echo(f"equal: {call['command']} of {', '.join(map(str, given))} gives what {file} says")
    return 0


def _command(name: str) -> click.Command:
    group = click.get_current_context().find_root().command
    assert isinstance(group, click.Group)
    return group.commands[name]


def _checked(file: Path, stated: Any) -> dict[str, Any]:
    """The call that a file states, of known commands and options and plain values alone; options
    as lists of texts.
    """
    call = stated.get("verify") if isinstance(stated, dict) else None
    if not isinstance(call, dict) or call.get("command") not in COMMANDS:
        raise ParameterError(
            f"{file}: says no call that can be run again; expected what analyze, explain or "
            "compare print with --json or --brief"
        )
    lists = {"options": dict, "models": list, "files": dict, "plugins": list}
    if wrong := [name for name, kind in lists.items() if not isinstance(call.get(name), kind)]:
        raise ParameterError(f"{file}: verify.{wrong[0]}: missing, or of another type")
    if not call["models"]:
        raise ParameterError(f"{file}: verify.models: missing")
    for one in (*call["models"], *call["files"].values(), *call["plugins"]):
        texts = isinstance(one, dict) and all(
            isinstance(one.get(key), str) for key in ("name", "sha256")
        )
        if not texts:
            raise ParameterError(f"{file}: verify: {one_line(str(one), 60)}: expected name, sha256")
    known = {name for one in _command(call["command"]).params for name in one.opts} - LEFT
    options = dict[str, list[str]]()
    for name, value in call["options"].items():
        some = value if isinstance(value, list) else [value]
        if name not in known or name in FILES or not all(isinstance(v, str | int) for v in some):
            raise ParameterError(f"{file}: verify.options.{name}: no option that a file may give")
        if name in ("--claim", "--program") and any(CODE.search(str(one)) for one in some):
            raise ParameterError(f"{file}: verify.options.{name}: is code, which is not run")
        options[name] = [str(one) for one in some]
    if not set(call["files"]) <= set(FILES):
        raise ParameterError(f"{file}: verify.files: expected {' and '.join(FILES)}")
    return {**call, "options": options}


def _found(file: Path, stated: Mapping[str, str]) -> Path:
    """The file of that name here or beside the JSON, the one of equal digest first."""
    places = [Path(stated["name"]), file.parent / Path(stated["name"]).name]
    there = [one for one in places if one.exists()]
    if not there:
        raise ParameterError(f"{file}: {stated['name']} is not here; give it with --model PATH")
    return next((one for one in there if digest(one) == stated["sha256"]), there[0])


def differences(stated: Any, found: Any, where: str = "") -> Iterator[str]:
    """A line for each field in which two results differ.

    >>> list(differences({"p": 0.01, "verdict": "yes"}, {"p": 0.010001, "verdict": "no"}))
    ["verdict: 'yes' in the file, 'no' here"]
    """
    if isinstance(stated, dict) and isinstance(found, dict):
        interval = found.get("interval")
        for name in dict.fromkeys([*found, *stated]):
            inner = f"{where}.{name}".lstrip(".")
            if name in UNCOMPARED:
                continue
            if name not in stated or name not in found:
                yield f"{inner}: only {'in the file' if name in stated else 'here'}"
            elif name == "value" and interval and _within(stated[name], interval):
                continue
            else:
                yield from differences(stated[name], found[name], inner)
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for place, (a, b) in enumerate(zip(stated, found, strict=True)):
            yield from differences(a, b, f"{where}[{place}]")
    elif not _alike(stated, found, where.rpartition(".")[2] in WORDS):
        shown = (one_line(repr(one), 60) for one in (stated, found))
        yield "{}: {} in the file, {} here".format(where, *shown)


def _within(value: Any, interval: Sequence[float]) -> bool:
    return isinstance(value, int | float) and interval[0] <= value <= interval[1]


def _alike(a: Any, b: Any, exactly: bool = False) -> bool:
    """Return whether two values are, numbers within a text as numbers unless `exactly`."""
    if isinstance(a, str) and isinstance(b, str) and not exactly and a != b:
        same = NUMBER.sub("#", a) == NUMBER.sub("#", b)
        numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (a, b)]
        return same and all(map(_alike, *numbers))
    if isinstance(a, bool | str | None) or isinstance(b, bool | str | None):
        return a == b and type(a) is type(b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= max(CLOSE * max(abs(a), abs(b)), TINY)
    return a == b
