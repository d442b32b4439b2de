"""What one compilation carries along, without xDSL: choices, reproducer files, and no garbage collection."""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tessera.diagnostics.codes import OverrideError
from tessera.runtime.private_files import make_folder, open_folder, write_file
from tessera.types.frozen import frozen

# `Chooser`: how a pass asks for a size without knowing who answers, and how a user fixes the answer.


@frozen
class Choice:
    """An answer and who gave it: `override`, `default`, the name of a model, or the tuner."""

    value: Any
    source: str


class Chooser(Protocol):
    """Whoever answers."""

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        """One of `candidates`, which are in order of preference.

        `key` names the knob, and after `@` the location that asks (`tile.n@group3`); `context` is what a model may look
        at (dims, dtypes, the machine).
        """
        ...


Model: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Any]


@dataclass
class StaticChooser:
    """Answers from overrides, then from the model of the knob, then the first candidate; it never measures.

    An override may name a knob (`tile.n`) or one location that asks for it (`tile.n@group3`); the latter wins.
    """

    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    models: Mapping[str, tuple[str, Model]] = field(default_factory=dict[str, tuple[str, Model]])
    asked: dict[str, Choice] = field(default_factory=dict[str, Choice], init=False)

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        if not candidates:
            raise ValueError(f"`{key}` was asked for without candidates")
        knob = key.partition("@")[0]
        for name in (key, knob):
            if name in self.overrides:
                choice = Choice(_match_candidate(name, self.overrides[name], candidates), "override")
                break
        else:
            named = self.models.get(knob)
            choice = Choice(candidates[0], "default") if named is None else _by_model(named, candidates, context)
        self.asked[key] = choice
        return choice

    def check_overrides(self) -> None:
        """Raises OverrideError (T0402) for an override that no pass asked for; called when a compile has ended."""
        known = {name for key in self.asked for name in (key, key.partition("@")[0])}
        for name in self.overrides:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise OverrideError(
                    f"`{name}` is not a choice of this program", span=None, fix=f"its choices: {listed}"
                )


def _by_model(named: tuple[str, Model], candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
    name, model = named
    value = model(candidates, context)
    assert value in candidates, f"the model {name} chose {value}, which is not a candidate"
    return Choice(value, name)


def _match_candidate(name: str, value: Any, candidates: Sequence[Any]) -> Any:
    plain = tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    for candidate in candidates:
        if candidate == plain:
            return candidate
    listed = ", ".join(map(str, candidates))
    raise OverrideError(f"`{name}` cannot be {value}", span=None, fix=f"it can be {listed}")


# Compiling without Python's garbage collector, which would walk every object made so far, over and over.


@contextmanager
def without_collection() -> Generator[None]:
    """Within it nothing is collected: loading the compiler and building IR make many objects, and most of them live."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# Files that let someone else see a failure: a text, where it goes, and its name made from its content.


def reproducer_folder() -> Path:
    """`TESSERA_REPRODUCERS`, or a folder of this user's below the system's temporary one."""
    given = os.environ.get("TESSERA_REPRODUCERS")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tessera-{os.getuid()}" / "reproducers"


def write_reproducer(stem: str, suffix: str, text: str) -> Path | None:
    """Write `text` once, under a name that the same text always gets; the path written.

    Written beside its path and moved there, so that two processes failing alike do not mix their lines. Where the
    folder cannot be written, or is another user's, a new temporary one is taken; where none can be made, there is no
    file: the failure that this is about is told all the same.
    """
    name = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{suffix}"
    is_private = "TESSERA_REPRODUCERS" not in os.environ  # a folder that the user names may be shared
    with suppress(OSError):
        return _write_reproducer(reproducer_folder(), name, text, is_private=is_private)
    with suppress(OSError):
        return _write_reproducer(Path(tempfile.mkdtemp(prefix="tessera-reproducers-")), name, text)
    return None


def _write_reproducer(path: Path, name: str, text: str, *, is_private: bool = True) -> Path:
    make_folder(str(path))
    with open_folder(str(path), is_private=is_private) as folder:
        write_file(name, folder, [text.encode()])
    return path / name
