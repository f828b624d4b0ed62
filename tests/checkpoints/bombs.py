"""Pickles of a few hundred bytes that ask for far more time or memory, or would run code."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self.place)!r}, 'w').close()",)


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


def members_of(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return {}


def write_members(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
