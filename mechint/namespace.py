"""``probes.fourier(subject, factor=3)``, ``tasks.listops(n=10)``: a registry as names of a module.

`probes` and `tasks` are packages whose modules are named as what they hold. `install` makes such a
package list its registry in `dir`, load an entry when its name is first used, and call it: a module
like ``probes.fourier`` stays a module and becomes callable as well.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mechint.registry import Registry

Call = Callable[..., Any]


def attribute(name: str) -> str:
    """A registry's name as a Python name.

    >>> attribute("modular-arithmetic")
    'modular_arithmetic'
    """
    return name.replace("-", "_").replace(".", "_")


def signature(kind: type, leading: list[inspect.Parameter], returns: Any) -> inspect.Signature:
    """`leading` parameters, then the dataclass fields of `kind` as keywords with their defaults."""
    settings = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field.type,
        )
        for field in dataclasses.fields(kind)
    ]
    return inspect.Signature([*leading, *settings], return_annotation=returns)


class CallableModule(ModuleType):
    """A module of `probes` or `tasks` that is called as what the registry has under its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call_of(self)(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_call_of(self))


def _call_of(module: ModuleType) -> Call:
    package, _, name = module.__name__.rpartition(".")
    namespace = sys.modules[package]
    assert isinstance(namespace, Namespace)
    if not namespace.has(name):
        raise TypeError(f"{module.__name__} is a module of helpers, not something to call")
    return namespace.call(name)


class Namespace(ModuleType):
    """A package whose attributes include the entries of a registry; see `install`."""

    _registry: Registry[Any]
    _make: Callable[[str, type], Call]

    def names(self) -> list[str]:
        """The names of the registry, sorted, plug-ins included; imports none of them."""
        return self._registry.names()

    def has(self, attribute_name: str) -> bool:
        """Whether an entry has that Python name."""
        return attribute_name in map(attribute, self._registry)

    def call(self, attribute_name: str) -> Call:
        """The function of the entry whose Python name is `attribute_name`."""
        name = next(name for name in self._registry if attribute(name) == attribute_name)
        kind = self._registry[name]
        function = self._make(name, kind)
        function.__name__, function.__qualname__ = attribute_name, attribute_name
        function.__doc__ = inspect.getdoc(kind)
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self.has(name):
            close = difflib.get_close_matches(name, dir(self), n=1)
            hint = f"; did you mean {close[0]!r}?" if close and not name.startswith("_") else ""
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}{hint}")
        own = f"{self.__name__}.{name}"
        if importlib.util.find_spec(own) is not None:
            return importlib.import_module(own)
        return self.call(name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets a submodule as an attribute of its package once it is imported; a plug-in may
        # be named as any of them, and be known only later
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            value.__class__ = CallableModule
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *map(attribute, self._registry)})


def install(package: str, registry: Registry[Any], make: Callable[[str, type], Call]) -> None:
    """Make `package` a Namespace of `registry`; make(name, kind) gives the function of an entry."""
    module = sys.modules[package]
    module.__class__ = Namespace
    vars(module).update(_registry=registry, _make=make)
