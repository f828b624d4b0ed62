"""Results that are kept for later, believed only where this user wrote them.

A kept file carries an HMAC under a key in the user's configuration folder, over what it says and
what that was measured with. Neither a lock nor the name of a user or host decides. What does not
verify is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mechint.errors import MechintError
from mechint.system.files import home, read_bytes

KEY_BYTES = 32
MARK = "hmac"
"""The field of a kept file that proves who wrote it."""
UNVERIFIED = "kept by somebody else and not measured again (--trust-kept)"
"""Words beside what was taken as it is."""


def signed(said: dict[str, Any]) -> dict[str, Any]:
    """`said`, JSON values, with the proof that this user kept them."""
    plain = json.loads(json.dumps(said))
    return {**plain, MARK: _code(plain)}


def is_signed(said: Any) -> bool:
    """Return whether this user's `signed` gave these JSON values."""
    if not isinstance(said, dict) or not isinstance(said.get(MARK), str):
        return False
    plain = {name: value for name, value in said.items() if name != MARK}
    return hmac.compare_digest(_code(plain).encode(), said[MARK].encode())


def _code(plain: dict[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True).encode()
    return hmac.new(_key(), text, hashlib.sha256).hexdigest()


def configuration_directory() -> Path:
    """This user's settings of mechint, which need not be there: ``$XDG_CONFIG_HOME/mechint``."""
    place = os.environ.get("XDG_CONFIG_HOME")
    return (Path(place) if place else home() / ".config") / "mechint"


def _key() -> bytes:
    return _key_in(configuration_directory())


@cache
def _key_in(directory: Path) -> bytes:
    """The key of the directory, made on first use; where it cannot be kept, one of this process."""
    file = directory / "key"
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # written whole under another name first: two processes may begin at once
        part = file.with_name(f".key.{secrets.token_hex(6)}")
        if not file.exists():
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as new:
                new.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(part, file)
            finally:
                part.unlink()
    with contextlib.suppress(MechintError):
        if len(found := read_bytes(file, KEY_BYTES)) == KEY_BYTES:
            return found
    return secrets.token_bytes(KEY_BYTES)


# --- what a result was measured with --------------------------------------------------------------
@cache
def code_of(package: str) -> str | None:
    """Digest of the sources of a package, or of the files beside a module that stands alone; None
    where it has no source.
    """
    source = getattr(sys.modules.get(package), "__file__", None)
    if source is None or not Path(source).is_file():
        return None
    file, digest = Path(source), hashlib.sha256()
    within = file.parent.rglob("*.py") if file.name == "__init__.py" else file.parent.glob("*.py")
    for one in sorted(within):
        digest.update(f"\0{one.name}\0".encode() + one.read_bytes())
    return digest.hexdigest()
