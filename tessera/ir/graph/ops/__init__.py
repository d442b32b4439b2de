"""The ops of Graph IR: every module of this package gives `SPECS`, and they are all here."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterator

from tessera.ir.base.spec import OpSpec, Registry

_USUAL = ("contraction", "elementwise", "creation", "softmax", "movement", "reduce", "select", "norm", "slicing")
"""Modules read first: a program found in the disk cache often needs no others, and they cost more than running it."""


class _Folder(Registry):
    """The ops of this folder; a module is read when an op is asked for that none read so far has."""

    def __init__(self) -> None:
        super().__init__("tgraph")
        names = sorted(module.name for module in pkgutil.iter_modules(__path__))
        self._unread = [*(name for name in _USUAL if name in names), *(name for name in names if name not in _USUAL)]
        self._read: dict[str, tuple[OpSpec, ...]] = {}
        self._lock = threading.RLock()

    def _read_until(self, name: str = "") -> None:
        """Read modules until one has the op `name`; all of them when none has."""
        full = name if "." in name else f"{self.dialect}.{name}"
        with self._lock:
            while self._unread and full not in self._specs:
                module = self._unread[0]
                specs = getattr(importlib.import_module(f"{__name__}.{module}"), "SPECS", ())
                # Importing may read the registry itself; the module is then done already.
                if module in self._unread:
                    self._unread.remove(module)
                    self._read[module] = tuple(self.add(spec) for spec in specs)

    def __getitem__(self, name: str) -> OpSpec:
        if self._unread:
            self._read_until(name)
        return super().__getitem__(name)

    def __contains__(self, name: str) -> bool:
        self._read_until(name)
        return super().__contains__(name)

    def __iter__(self) -> Iterator[OpSpec]:
        self._read_until()
        return (spec for module in sorted(self._read) for spec in self._read[module])

    def __len__(self) -> int:
        self._read_until()
        return super().__len__()


REGISTRY: Registry = _Folder()
"""Every op that a program may call, by name."""
