"""``mechint verify``: run again what a JSON of mechint says, and name what differs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import mechint
from mechint.cli.common import PLUGINS, example_commands, path_option, plugin_option, print_error
from mechint.errors import ParameterError, one_line
from mechint.system.files import digest_of, read_json

COMMANDS = ("analyze", "explain", "compare")
LEFT = {"--json", "--out", "--python", "--full", "--plugin", "--device", "--light", "--force"}
"""Options that a file may not give: what writes, runs code or is of a machine."""
FILES = ("--data", "--mapping")
FIELDS = {"as", "name", "sha256"}
BESIDE = ("config.json", "tokenizer.json", "mapping.yaml")
"""Files of a directory that say, with its weights, what a model is."""
CODE = re.compile(r"\.py:\w+$")
UNCOMPARED = {"path", "next", "verify", "mechint", "torch"}
"""Fields that are of a machine, or say what was run."""
WORDS = {"verdict", "standing", "lead"}
"""Fields whose text is compared as it stands, numbers included."""
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
CLOSE, TINY = 1e-3, 1e-6
"""The largest difference of two numbers, of the larger one; below the second they are rounding."""
MISSING = "nothing"
SHOWN = 6
"""Differences that are named, at most."""


# --- what a result says of its making -------------------------------------------------------------
def call_of(paths: Sequence[Path]) -> dict[str, Any]:
    """The call of the current command on these models, as `verify` makes it again: options that
    differ from their defaults, and digests of the models, files and plug-ins.
    """
    context = click.get_current_context()
    options, files = dict[str, Any](), [_stated("PATH", path) for path in paths]
    for param in context.command.params:
        value, name = context.params.get(str(param.name)), param.opts[0]
        given = value is not None and value is not False and value != ()  # 0 is a value
        if not isinstance(param, click.Option) or not given:
            continue
        if name in FILES:
            files.append(_stated(name, Path(str(value))))
        elif name not in LEFT and value != param.default:
            options[name] = [*value] if type(value) is tuple else value
    files += [_stated("--plugin", path) for path in _plugins(context)]
    asked = {"command": context.command.name, "options": options}
    return {**asked, "files": files, "version": mechint.__version__}


def _plugins(context: click.Context) -> list[Path]:
    return [Path(text.rpartition(":")[0]) for text in context.meta.get(PLUGINS, ())]


def _stated(option: str, path: Path) -> dict[str, str]:
    name = path.name if path.is_absolute() or option == "--plugin" else str(path)
    return {"as": option, "name": name, "sha256": digest(path)}


def digest(path: Path) -> str:
    """The SHA-256 digest of a file; of a directory, of its weights, configuration and tokenizer."""
    if path.is_file():
        return digest_of(path)
    digests = [
        [file.relative_to(path).as_posix(), digest(file)]
        for file in sorted(path.rglob("*"))
        if file.is_file() and (file.suffix in (".pt", ".safetensors") or file.name in BESIDE)
    ]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


# --- the same again -------------------------------------------------------------------------------
@click.command(
    short_help="Run a result again from its JSON, and name what differs.",
    epilog=example_commands(
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
    call, command = _checked(file, stated)
    given = {"PATH": list(models), "--plugin": _plugins(click.get_current_context())}
    words, places = [] if "--brief" in call["options"] else ["--json"], list[str]()
    for stated_file in call["files"]:
        role = stated_file["as"]
        path = given[role].pop(0) if given.get(role) else _found(file, stated_file)
        here = _stated(role, path)
        # a plug-in runs code: its name has to be the one that was given, too
        compared = ("name", "sha256") if role == "--plugin" else ("sha256",)
        if any(stated_file[key] != here[key] for key in compared):
            said = (f"{it['name']} sha256 {it['sha256'][:16]}" for it in (stated_file, here))
            print_error("differs: {} {} in the file, {} here; not run".format(role, *said))
            return 1
        places += [str(path)] if role == "PATH" else []
        words += [f"{role}={path}"] if role in FILES else []
    for name, value in call["options"].items():
        some = value if isinstance(value, list) else [value]
        words += [name] if value is True else [f"{name}={it}" for it in some]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        command.main([*words, "--", *places], prog_name="mechint", standalone_mode=False)
    wrong = list(differences(stated, json.loads(out.getvalue())))
    wrong.sort(key=lambda line: "settings" not in line)  # what the rest follows from
    for line in [*wrong[:SHOWN], *[f"{len(wrong)} fields in all"] * (len(wrong) > SHOWN)]:
        print_error(f"differs: {line}")
    if not wrong:
        click.echo(f"equal: {call['command']} of {', '.join(places)} gives what {file} says")
    return int(bool(wrong))


def _checked(file: Path, stated: Any) -> tuple[dict[str, Any], click.Command]:
    """The call that a file states, and its command: of known options and plain values alone."""
    call = stated.get("verify") if isinstance(stated, dict) else None
    if not isinstance(call, dict) or call.get("command") not in COMMANDS:
        raise ParameterError(
            f"{file}: says no call that can be run again; expected what analyze, explain or "
            "compare print with --json or --brief"
        )
    options, files = call.get("options"), call.get("files")
    if not isinstance(options, dict) or not isinstance(files, list):
        raise ParameterError(f"{file}: verify: expected options, a mapping, and files, a list")
    group: Any = click.get_current_context().find_root().command
    command = group.commands[call["command"]]
    known = {name for one in command.params for name in one.opts} - {*LEFT, *FILES}
    for name, value in options.items():
        some = value if isinstance(value, list) else [value]
        if name not in known or not all(isinstance(one, str | int) for one in some):
            raise ParameterError(f"{file}: verify.options.{name}: no option that a file may give")
        if any(CODE.search(str(one)) for one in some):
            raise ParameterError(f"{file}: verify.options.{name}: is code, which is not run")
    for one in files:
        texts = isinstance(one, dict) and all(isinstance(one.get(key), str) for key in FIELDS)
        if not texts or one["as"] not in ("PATH", "--plugin", *FILES):
            raise ParameterError(f"{file}: verify.files: expected as, name, sha256 of each")
    return call, command


def _found(file: Path, stated: Mapping[str, str]) -> Path:
    """The file of that name here or beside the JSON, the one of equal digest first; no plug-in."""
    places = [Path(stated["name"]), file.parent / Path(stated["name"]).name]
    there = [one for one in places if one.exists()] if stated["as"] != "--plugin" else []
    if not there:
        option = "--model PATH" if stated["as"] == "PATH" else "--plugin FILE.py:NAME"
        raise ParameterError(f"{file}: was made with {stated['name']}; give it by {option}")
    return next((one for one in there if digest(one) == stated["sha256"]), there[0])


def differences(stated: Any, found: Any, where: str = "") -> Iterator[str]:
    """A line for each field in which two results differ.

    >>> list(differences({"p": 0.01, "verdict": "yes"}, {"p": 0.010001, "verdict": "no"}))
    ["verdict: 'yes' in the file, 'no' here"]
    """
    if isinstance(stated, dict) and isinstance(found, dict):
        low, high = found.get("interval") or (1, 0)
        for name in sorted({*found, *stated} - UNCOMPARED):
            a, b = stated.get(name, MISSING), found.get(name, MISSING)
            if name != "value" or not isinstance(a, float) or not low <= a <= high:
                yield from differences(a, b, f"{where}.{name}".lstrip("."))
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for place, both in enumerate(zip(stated, found, strict=True)):
            yield from differences(*both, f"{where}[{place}]")
    elif not _alike(stated, found, where.rpartition(".")[2] in WORDS):
        shown = (one_line(repr(one), 60) for one in (stated, found))
        yield "{}: {} in the file, {} here".format(where, *shown)


def _alike(a: Any, b: Any, exactly: bool = False) -> bool:
    """Return whether two values are, numbers within a text as numbers unless `exactly`."""
    if {type(a), type(b)} == {str} and not exactly:
        same = NUMBER.sub("#", a) == NUMBER.sub("#", b)
        numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (a, b)]
        return same and all(map(_alike, *numbers))
    if {type(a), type(b)} <= {int, float}:
        return math.isclose(a, b, rel_tol=CLOSE, abs_tol=TINY)
    return type(a) is type(b) and a == b
