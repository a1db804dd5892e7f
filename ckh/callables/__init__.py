"""Packages that are called as functions: `ckh.bench(...)` and `ckh.tune(...)`, whose modules are imported as usual."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


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
        return self.function(*args, **options)


def make_callable(package: str, called: str) -> None:
    """Have an imported package call a function, "package.module:function"."""
    module = sys.modules[package]
    module.__class__ = CallablePackage
    module.called = called  # type: ignore[attr-defined]
