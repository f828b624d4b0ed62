"""Seeded mutations of checkpoints, opened in a process with limits on memory and time.

    python -m tests.checkpoints.mutations FOLDER SEED COUNT [CAMPAIGN]

prints one JSON object: how many mutants of each kind were opened, refused, raised, hung or ran
code, and every one that broke a promise: a raw exception, an error of several lines or more than
500 characters, foreign code that ran, more than `SECONDS` of processor time, or memory beyond the
bound.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import signal
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.content import read_content
from mechint.errors import MechintError
from tests.checkpoints.bases import BASES, MAPPED

SECONDS = 5
"""Processor seconds of one mutant; the slowest whole one takes about a fifth of a second."""

MEMORY = 1 << 30
"""Bytes by which a mutant may raise the process's peak of mapped memory."""

ADDRESS_SPACE = 12 << 30
PROCESSOR_SECONDS = 1200
NUMBERS = (0, -1, 10**7, 2**63, -(2**70), 10**400, 0.5, float("nan"), float("inf"))
TEXTS = ("", "x" * 5000, "\x1b[31mred", "a\nb", "\u202eevil", "\x00", "../../etc/passwd", "[bold]")


# --- hostile values -------------------------------------------------------------------------------
def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def shared(levels: int = 40) -> Any:
    """2 ** levels values in a few hundred bytes."""
    value: Any = [0]
    for _ in range(levels):
        value = [value, value]
    return value


def hostile(chance: random.Random) -> Any:
    """A value of a kind, or a tensor of a type or shape, that no reader expects."""
    shape = tuple(chance.choice((0, 1, 2, 3, 7)) for _ in range(chance.randrange(4)))
    makers = (
        *(lambda: chance.choice(NUMBERS), lambda: chance.choice(TEXTS), lambda: None, lambda: True),
        *(lambda: deep(chance.choice((3, 70, 300))), cyclic, shared),
        *(lambda: {"a": 1, 2: "b"}, lambda: [], lambda: b"bytes"),
        lambda: torch.ones(shape, dtype=chance.choice((torch.complex64, torch.int32, torch.half))),
        lambda: torch.full(shape, chance.choice((1.0, float("nan")))),
        *(lambda: torch.eye(3).to_sparse(), lambda: torch.ones(1).expand(10**6, 10**6)),
        lambda: torch.empty(10**9, device="meta"),
    )
    return chance.choice(makers)()


# --- mutations ------------------------------------------------------------------------------------
def flip_bytes(path: Path, chance: random.Random, marker: Path) -> None:
    path.write_bytes(_flipped(path.read_bytes(), chance, (1, 1, 3, 20)))


def _flipped(data: bytes, chance: random.Random, counts: tuple[int, ...]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice(counts)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut_or_join(path: Path, chance: random.Random, marker: Path) -> None:
    data = path.read_bytes()
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(chance.choice((data[:a], data[a:], data[:a] + data[b:], data + data[a:b])))


def edit_pickle(path: Path, chance: random.Random, marker: Path) -> None:
    """Bytes of the pickle inside, under checksums that are right."""
    members = _members(path)
    for name in [name for name in members if name.endswith("data.pkl")]:
        _write_members(path, members | {name: _flipped(members[name], chance, (1, 2, 5))})


def edit_members(path: Path, chance: random.Random, marker: Path) -> None:
    """A member left out, emptied, or compressed to a bomb."""
    members = _members(path)
    if not members:
        return cut_or_join(path, chance, marker)
    name, kind = chance.choice(list(members)), chance.randrange(3)
    members[name] = bytes((0, 0, 20 << 20)[kind])
    if kind == 0:
        members.pop(name)
    _write_members(path, members, zipfile.ZIP_DEFLATED if kind == 2 else zipfile.ZIP_STORED)


def edit_values(path: Path, chance: random.Random, marker: Path) -> None:
    """Values of the object inside replaced by hostile ones, saved whole."""
    if path.suffix == ".safetensors":
        return edit_safetensors(path, chance)
    content = read_content(path)
    target, key = content, chance.choice(list(content))
    while isinstance(target[key], dict) and target[key] and chance.random() > 0.3:
        target = target[key]
        key = chance.choice(list(target))
    if chance.random() < 0.1:
        target.pop(key)
    else:
        target[chance.choice((key, key, key, *TEXTS[:2], 7, None))] = hostile(chance)
    try:
        torch.save(content, path)
    except (RecursionError, NotImplementedError, RuntimeError):  # what torch itself cannot write
        path.write_bytes(b"\x80\x02N.")


def edit_safetensors(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if chance.random() < 0.5:
        inner = json.loads(header["__metadata__"]["mechint"])
        inner[chance.choice(list(inner))] = chance.choice((*NUMBERS, *TEXTS, None, [], deep(200)))
        header["__metadata__"]["mechint"] = json.dumps(inner)
    else:
        key = chance.choice([name for name in header if name != "__metadata__"])
        field = chance.choice(("dtype", "shape", "data_offsets"))
        header[key][field] = chance.choice(("F64", "BOOL", [10**12], [-1], [0, 2**62]))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def edit_sibling(path: Path, chance: random.Random, marker: Path) -> None:
    """The configuration beside the file."""
    siblings = [file for file in path.parent.glob("*.json") if file != path]
    place = chance.choice(siblings) if siblings else path.with_name("cfg.json")
    given = json.loads(place.read_text()) if siblings else {"d_model": 4}
    key = chance.choice((*given, "d_model", "dataset", "act_fn", "eps", "use_attn_scale"))
    given[key] = chance.choice((*NUMBERS, *TEXTS, None, [], {}, {"p": 5}, deep(30)))
    text = json.dumps(given)
    place.write_text(chance.choice((text, text, text[: chance.randrange(len(text))], "[" * 10**5)))
    if chance.random() < 0.2:
        path.with_name("config.yaml").write_text("a: &a [1]\nb: [*a, *a]\nmodel: {d_model: 4}\n")


CONSTRUCTED = ("!!bool x", "!!int ''", "!!float ''", "!!timestamp x", "!!python/name:os.mkdir")
STATED = (1, True, [-1], {"zeros": [-1]}, {"ones": [10**9]}, {"identity": [True]}, {"zeros": 3})
STATED += ({"from": 1}, {"from": "W_x", "pattern": "a b -> (b a"}, {"a": 1}, "9" * 400)
STATED += ({"from": "W_x", "pattern": "a b -> b a"}, {"scale": 2}, "W_y", "{layer}" * 50)


def edit_mapping(path: Path, chance: random.Random, marker: Path) -> None:
    """Values of the mapping beside the file replaced, or its text damaged."""
    place = path.with_name("mapping.yaml")
    text = place.read_text() if place.exists() else "weights: {embed.W_E: a}\n"
    if chance.random() < 0.2:
        line = chance.choice(text.splitlines())
        damaged = _flipped(text.encode(), chance, (1, 5)), line.partition(":")[0].encode()
        tag = chance.choice(CONSTRUCTED).encode()
        place.write_bytes(chance.choice((damaged[0], damaged[1] + b": " + tag, b"a: " + tag)))
        return
    given = yaml.safe_load(text)
    for _ in range(chance.choice((1, 1, 2, 4))):
        target: Any = given
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            key = chance.choice(keys)
            inner = target[key]
            if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
                break
            target = inner
        plain = (*NUMBERS, *TEXTS, None, [], {}, deep(30))
        target[key] = copy.deepcopy(chance.choice((*plain, *STATED, *STATED)))
    place.write_text(yaml.safe_dump(given))


def hostile_pickle(path: Path, chance: random.Random, marker: Path) -> None:
    """A pickle that would run code, or that asks for memory it does not bring."""
    place, huge = str(marker).encode(), b"I20000000000\n"
    makers = (b"builtins\nbytearray", b"torch\nTensor", b"torch.storage\nUntypedStorage")
    chosen = chance.choice(
        (
            *(b"\x80\x02c" + name + b"\n" + huge + b"\x85R." for name in makers),
            b"\x80\x02cos\nmkdir\nX" + len(place).to_bytes(4, "little") + place + b"\x85R.",
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00"
            b"\x00cpu" + huge + b"NtQ.",
            b"\x80\x02" + b"(" * 10**5 + b".",
            b"\x80\x02]" + b"]q\x00h\x00a" * 10**4 + b".",
        )
    )
    members = _members(path)
    name = next((name for name in members if name.endswith("data.pkl")), None)
    if name is not None and chance.random() < 0.8:
        _write_members(path, members | {name: chosen})
    else:
        path.write_bytes(chosen)


def plant_bomb(path: Path, chance: random.Random, marker: Path) -> None:
    """A pickle that grows where it is read as a module of a library that is gone."""
    members = _members(path)
    if name := next((name for name in members if name.endswith("data.pkl")), None):
        made = _flipped(chance.choice(list(bombs().values())), chance, (0, 0, 1, 3))
        _write_members(path, members | {name: made})


MODULE = b"cgone\nModule\n)R"
"""An instance of a class that is gone."""


def _text(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def module_of(inner: bytes) -> bytes:
    """A pickled module whose modules are the entries ``name value`` of `inner`."""
    state = _text("_parameters") + b"}" + _text("_modules") + b"}(" + inner + b"u"
    return MODULE + b"}(" + state + b"ub"


def twice_in_itself(levels: int) -> bytes:
    """A module with the same module twice in it, and so on."""
    made = module_of(b"")
    for level in range(levels):
        name = b"r" + level.to_bytes(4, "little")
        again = b"j" + level.to_bytes(4, "little")
        made = module_of(_text("a") + made + name + _text("b") + again)
    return b"\x80\x02" + made + b"."


def bombs() -> dict[str, bytes]:
    """Pickles of a few hundred bytes that ask for far more time or memory, or for a state."""
    doubled = b"]" + b"".join(b"q%c" % i + b"](h%c" % i + b"h%ce" % i for i in range(40))
    beside = b"\x80\x02}(" + _text("model") + module_of(b"") + _text("x") + doubled + b"u."
    number = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    )
    named = b"".join(b"g0\n0" for _ in range(20_000))
    kind, dtype = b"ctorch._utils\n_rebuild_tensor_v2\n", b"cnumpy\ndtype\n"
    object_state = b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?t"
    raw = _text("x" * 8) + _text("latin1") + b"\x86"
    dtyped = dtype + _text("f8") + b"\x89\x88\x87R" + object_state + b"b"
    scalar = b"cnumpy.core.multiarray\nscalar\n" + dtyped + b"c_codecs\nencode\n" + raw + b"R\x86R"
    return {
        "a list twice in itself beside a module": beside,
        "a module twice in itself": twice_in_itself(40),
        "an array of bytes of 3 GiB": MODULE[:-2]
        + b"\x96"
        + (3 << 30).to_bytes(8, "little")
        + b".",
        "a text many times": b"\x80\x02" + module_of(b"") + b"0" + _text("x" * 10**6) + b"p0\n0"
        b"(" + b"c_codecs\nencode\ng0\n" * 3000 + _text("latin1") + b"t.",
        "a storage many times": b"\x80\x02"
        + MODULE
        + b"0"
        + number
        + b"J\x00\x00\x04\x00tp0\n"
        + named
        + b".",
        "defaults of a function": b"\x80\x02"
        + MODULE
        + b"0"
        + kind
        + b"N}("
        + _text("__defaults__")
        + b"K\x01\x85u\x86b.",
        "a class imported from torch": b"\x80\x02" + MODULE + b"0ctorch\n_dynamo\n.",
        "a dtype of objects": b"\x80\x02" + MODULE + b"0" + scalar + b".",
        **_hashed(),
        **_allocated(),
    }


def _long(number: int) -> bytes:
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def _doubled(levels: int) -> bytes:
    """A tuple with the same tuple twice in it, and so on."""
    return b")q\x00" + b"h\x00\x86q\x00" * levels


def _colliding(count: int) -> bytes:
    """Pairs of integers whose hashes are equal: the second is solved from the first, as
    ``hash((a, b))`` mixes one number at a time.
    """
    first, second, fifth = 11400714785074694791, 14029467366897019727, 2870177450012600261
    mask, made = 2**64 - 1, bytearray()
    inverse, a = pow(second, -1, 2**64), 0
    while count:
        a += 1
        mixed = (fifth + a * second) & mask
        mixed = ((mixed << 31) | (mixed >> 33)) & mask
        b = (-mixed * first * inverse) & mask
        if b < 2**61 - 1:
            made += _long(a) + _long(b) + b"\x86"
            count -= 1
    return bytes(made)


def _hashed() -> dict[str, bytes]:
    """Keys and members of sets that take far longer to hash than to read."""
    prime, start, deep = 2**61 - 1, b"\x80\x02", b")" + b"\x85" * 2_000_000
    longs = b"".join(_long(prime * (i + 1)) for i in range(60_000))
    pairs, twice = _colliding(40_000), _doubled(40)
    called = {kind: b"c" + kind + b"\n(](" for kind in (b"builtins\nset", b"collections\nCounter")}
    ordered = b"ccollections\nOrderedDict\n"
    again = b"](" + b"".join(b"J" + i.to_bytes(4, "little") for i in range(10_000)) + b"eq\x010"
    return {
        "a doubled tuple as a key": start + b"}" + twice + b"Ns.",
        "a doubled tuple as a key of several": start + b"}(K\x01N" + twice + b"Nu.",
        "a doubled tuple as a key of DICT": start + b"(" + twice + b"Nd.",
        "a doubled tuple as a key beside a module": start + MODULE + b"0}" + twice + b"Ns.",
        "a doubled tuple in a set": start + called[b"builtins\nset"] + twice + b"etR.",
        "a doubled tuple in a set of its own opcode": b"\x80\x04\x8f(" + twice + b"\x90.",
        "a doubled tuple in a frozen set": b"\x80\x04(" + twice + b"\x91.",
        "a deep tuple as a key": start + b"}" + deep + b"Ns.",
        "a deep tuple in a set beside a module": start
        + MODULE
        + b"0"
        + called[b"builtins\nset"]
        + deep
        + b"etR.",
        "integers that collide as keys": start
        + b"}("
        + b"".join(_long(prime * (i + 1)) + b"N" for i in range(60_000))
        + b"u.",
        "integers that collide in a set": start + called[b"builtins\nset"] + longs + b"etR.",
        "pairs that collide in a set": start + called[b"builtins\nset"] + pairs + b"etR.",
        "pairs that collide in a counter": start
        + called[b"collections\nCounter"]
        + pairs
        + b"etR.",
        "a doubled tuple as a key of an ordered mapping": start
        + ordered
        + b"(](]("
        + twice
        + b"Neetb.".replace(b"b", b"R"),
        "a doubled tuple as a key of a state": start + ordered + b")R](](" + twice + b"Neeb.",
        "a set called by another function": start
        + b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\nset\nctorch\nTensor\n]("
        + twice
        + b"e\x85}tR.",
        "a list in many sets": start
        + again
        + b"]("
        + b"cbuiltins\nset\nh\x01\x85R" * 20_000
        + b"e.",
        "a mapping in itself": start + b"}q\x00X\x01\x00\x00\x00ah\x00s.",
        "mappings in mappings": start + b"}K\x01" * 5000 + b"N" + b"s" * 5000 + b".",
    }


def _allocated() -> dict[str, bytes]:
    """Types that take memory for a number, and texts and numbers that are long."""
    start, huge = b"\x80\x02](", b"J\xff\xff\xff\x7f\x85R"
    many = {
        name: start + (b"c" + name + b"\n" + huge) * 30 + b"e."
        for name in (
            *(b"builtins\nbytearray", b"torch\nTensor", b"torch\nFloatTensor"),
            *(b"torch.storage\nUntypedStorage", b"__builtin__\nbytearray"),
        )
    }
    text = b"X" + (10**6).to_bytes(4, "little") + b"x" * 10**6 + b"q\x010"
    encoded = b"c_codecs\nencode\nh\x01" + _text("latin1") + b"\x86R"
    return {f"thirty of {name.decode().split()[1]}": data for name, data in many.items()} | {
        "a text encoded many times": b"\x80\x02" + text + b"](" + encoded * 5000 + b"e.",
        "an integer of ten million digits": b"\x80\x02I" + b"9" * 10**7 + b"\n.",
        "an integer of 160 million bits": b"\x80\x02\x8b"
        + (20_000_000).to_bytes(4, "little")
        + b"\x7f" * 20_000_000
        + b".",
        "five million values that are dropped": b"\x80\x02" + b"N0" * 5_000_000 + b"N.",
        "three million values": b"\x80\x02](" + b"N" * 3_000_000 + b"e.",
    }


def _members(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return {}


def _write_members(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


MUTATIONS = (
    *(flip_bytes, cut_or_join, edit_pickle, edit_members, edit_values, edit_values),
    *(edit_sibling, hostile_pickle, plant_bomb, edit_mapping),
)


# --- opening them ---------------------------------------------------------------------------------
def peak() -> int:
    """The process's peak of mapped memory, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPeak"))


def attack(
    folder: Path, bases: dict[str, Path], seed: int, only: Sequence[Any]
) -> tuple[str, str, str]:
    """(mutation, outcome, what is wrong with it) of one mutant, by one of `only` (default: any)."""
    chance = random.Random(seed)
    base = chance.choice(list(bases))
    mutate = chance.choice(only or MUTATIONS)
    place = folder / "mutant"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(bases[base].parent, place)
    path, marker = place / bases[base].name, folder / "ran"
    mutate(path, chance, marker)
    name, mapped, began = f"{mutate.__name__} of {base}", peak(), time.process_time()
    outcome, wrong = "opened", ""
    try:
        load_checkpoint(path)
    except MechintError as error:
        outcome, text = "refused", str(error)
        if len(text) > 500 or not text.isprintable():
            outcome = "raised"
            wrong = f"message of {len(text)} characters: {text[:200]!r}"
    except TimeoutError as error:
        outcome, wrong = "hung", str(error)
    except BaseException as error:
        outcome, wrong = "raised", f"{type(error).__name__}: {str(error)[:200]}"
    spent = time.process_time() - began
    if spent > SECONDS:
        outcome, wrong = "hung", f"{spent:.1f} s of processor time"
    if peak() - mapped > MEMORY:
        outcome, wrong = "raised", f"{(peak() - mapped) >> 20} MiB mapped"
    if marker.exists():
        outcome, wrong = "ran", "foreign code ran"
        marker.rmdir()
    return name, outcome, wrong


CAMPAIGNS: dict[str, tuple[Sequence[str], Sequence[Any]]] = {
    "all": (tuple(BASES), ()),
    "mappings": (tuple(MAPPED), (edit_mapping,)),
    "modules": (("pickled_module",), (flip_bytes, edit_pickle, edit_members, plant_bomb)),
}
"""Campaign → the files and the mutations of it; all where none are named."""


def main(folder: Path, first: int, count: int, campaign: str = "all") -> None:
    torch.set_num_threads(1)
    bases = {}
    names, only = CAMPAIGNS[campaign]
    for name, make in BASES.items():
        if name not in names:
            continue
        home = folder / "bases" / name
        home.mkdir(parents=True, exist_ok=True)
        bases[name] = make(home)
        load_checkpoint(bases[name])  # every family is whole to begin with
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    signal.signal(signal.SIGALRM, _hung)
    warnings.simplefilter("error")  # a damaged file is refused, not warned about
    seen: Counter[str] = Counter()
    wrong = []
    for seed in range(first, first + count):
        signal.alarm(120)
        name, outcome, problem = attack(folder, bases, seed, only)
        signal.alarm(0)
        seen[f"{name.partition(' ')[0]} {outcome}"] += 1
        if problem:
            wrong.append(f"seed {seed}: {name}: {problem}")
    sys.stdout.write(json.dumps({"seen": dict(sorted(seen.items())), "wrong": wrong}))


def _hung(*_: Any) -> None:
    raise TimeoutError("two minutes passed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
