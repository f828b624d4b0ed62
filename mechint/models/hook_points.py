"""TransformerLens's `HookPoint` and `HookedRootModule`, without the rest of TransformerLens.

The package imports transformers, datasets, pandas and pytest, 1.5 s of processor time; the modules
with the hook points need PyTorch alone. So where TransformerLens is not imported yet, its packages
are entered in `sys.modules` with their bodies unexecuted, and run at the first look at anything
that is not below. The module objects and the classes are TransformerLens's own, whichever is
imported first, and a version that keeps its hook points elsewhere is imported whole.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

__all__ = ["HookPoint", "HookedRootModule", "import_transformer_lens"]

_LIGHT = {
    "transformer_lens": {},
    "transformer_lens.conversion_utils": {},
    "transformer_lens.conversion_utils.conversion_steps": {},
    "transformer_lens.utilities": {
        "Slice": "slice",
        "SliceInput": "slice",
        "remove_batch_dim": "tensors",
        "warn_if_mps": "devices",
    },
}
"""Packages on the way to the hook points → names that need no more than one of their modules."""

_LOCK = threading.RLock()
_EXECUTING: set[str] = set()


class _Deferred(ModuleType):
    """A package whose body runs when a name is asked for that it does not have, or another of its
    modules.
    """

    def __getattr__(self, name: str) -> Any:
        package = self.__name__
        if name in _LIGHT[package]:
            return getattr(importlib.import_module(f"{package}.{_LIGHT[package][name]}"), name)
        if name.startswith("__") and name not in ("__all__", "__path__"):  # asked of every module
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        self._execute()
        if type(self) is _Deferred:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        self._execute()
        return dir(self)

    def _execute(self) -> None:
        with _LOCK:
            if type(self) is not _Deferred or self.__name__ in _EXECUTING:
                return  # by another thread, or asked for by the body itself
            above = sys.modules.get(self.__name__.rpartition(".")[0])
            if isinstance(above, _Deferred):
                above._execute()
            spec = self.__spec__
            assert spec is not None and spec.loader is not None
            self.__path__ = list(spec.submodule_search_locations or ())
            _EXECUTING.add(self.__name__)
            try:
                spec.loader.exec_module(self)
            finally:
                _EXECUTING.discard(self.__name__)
            _bind_submodules(self)
            self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]


def import_transformer_lens() -> Any:
    """TransformerLens as a whole, its body executed: to be called before one of its submodules is
    imported, which would else execute the body in the midst of its own and find itself half made.
    """
    package = importlib.import_module("transformer_lens")
    dir(package)
    return package


def _bind_submodules(package: ModuleType) -> None:
    """Make modules that were imported before the body attributes of `package`, as importing does,
    where the body has not bound the name.
    """
    for name, module in list(sys.modules.items()):
        parent, _, own = name.rpartition(".")
        if parent == package.__name__ and own not in vars(package):
            setattr(package, own, module)


def _import_deferred() -> tuple[Any, Any]:
    """The two classes by their modules alone."""
    for name in _LIGHT:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        sys.modules[name] = package = importlib.util.module_from_spec(spec)
        package.__class__ = _Deferred
    root = importlib.import_module("transformer_lens.HookedRootModule").HookedRootModule
    point = importlib.import_module("transformer_lens.hook_points").HookPoint
    # a module that stays an attribute would hide what the body binds (a class, HookedRootModule),
    # and without a path any other module is looked for only after the body has run
    for package in map(sys.modules.__getitem__, _LIGHT):
        if type(package) is _Deferred:
            for own in [key for key in vars(package) if f"{package.__name__}.{key}" in sys.modules]:
                delattr(package, own)
            del package.__path__
    return root, point


def _load() -> tuple[Any, Any]:
    if "transformer_lens" not in sys.modules:
        try:
            return _import_deferred()
        except Exception:  # another version keeps them elsewhere
            for name in list(sys.modules):
                if name.partition(".")[0] == "transformer_lens":
                    del sys.modules[name]
    package = importlib.import_module("transformer_lens")
    points = importlib.import_module("transformer_lens.hook_points")
    return package.HookedRootModule, points.HookPoint


if not TYPE_CHECKING:
    HookedRootModule, HookPoint = _load()
