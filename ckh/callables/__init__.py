"""Functions of `import ckh`, whose errors name arguments as Python does, and packages that are called as functions.

`ckh.bench(...)` and `ckh.tune(...)` are packages, whose modules are imported as usual.
"""

from __future__ import annotations

import re
import sys
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTION = re.compile(r"(?<!\S)--(?:no-)?([a-z][a-z0-9-]*)")


def public(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as `ckh.NAME`: its errors name arguments (`pad_h`), not options of the command (`--pad-h`)."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except CkhError as error:
            error.message, error.hint = map(_in_python, (error.message, error.hint))
            error.args = (error.message,)
            raise

    call.__module__, call.__qualname__ = "ckh", name  # found again by pickle
    return call


def _in_python(text: str) -> str:
    """Options as names of arguments, but for texts that name a command."""
    return text if "ckh " in text else _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


class CallablePackage(ModuleType):
    """A package that calls a function of another module, `called` as "package.module:function"."""

    called: str

    @property
    def function(self) -> Any:
        """The function, imported on first use."""
        module, _, name = self.called.partition(":")
        return getattr(import_module(module), name)

    @property
    def __signature__(self) -> Any:
        """The function's, for help in notebooks."""
        from inspect import signature

        return signature(self.function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return public(self.__name__.rpartition(".")[2], self.function)(*args, **options)


def make_callable(package: str, called: str) -> None:
    """Have an imported package call a function, "package.module:function"."""
    module = sys.modules[package]
    module.__class__ = CallablePackage
    module.called = called  # type: ignore[attr-defined]
