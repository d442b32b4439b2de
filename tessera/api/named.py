"""What few functions give `jit` as texts: parameters whose tensors are given up, and rules of sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.span import user_span
from tessera.frontend.annotations import Parameter

if TYPE_CHECKING:
    from tessera.types.constraint import Constraint


def given_up(names: Sequence[str], parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """The parameters whose tensors are given up, each once; raises ArgumentError (T0202) for one that has none."""
    known = [parameter.name for parameter in parameters if not parameter.static]
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"`jit` takes names of parameters with tensors as `donate`, and `{name}` is none",
                fix=f"parameters are {', '.join(known)}" if known else "leave `donate` out",
            )
    return tuple(sorted(set(names)))


def numbers_of(names: Sequence[str], paths: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the tensors that belong to some parameters, by the paths of all (`cache.K`, `layers[0]['w']`)."""
    owners = [path.replace("[", ".").split(".")[0] for path in paths]
    return tuple(number for number, owner in enumerate(owners) if owner in names)


def rules_of(constraints: Iterable[str] | str) -> Sequence[Constraint]:
    """Rules that sizes must keep, as they were written."""
    from tessera.frontend.constraints import parse_constraints  # noqa: PLC0415 - few functions have any

    return parse_constraints(constraints, user_span())
