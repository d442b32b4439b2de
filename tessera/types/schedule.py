"""`Schedule`: how a kernel is cut into blocks and carried out, as a value with a lineage; and spaces of them.

A schedule never says what is computed. It is written as a value (`Schedule(block=(128, 128), warps=8)`), as a chain
(`block(128, 128).k(64).warps(8).stages(3)`), or, with lists in a chain, as a space of schedules.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, cast

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

SWIZZLES = ("none", "xor")
TRIANGLES = ("lower", "upper")
REGISTER_CAPS = (16, 255)
"""The range of register caps per thread: fewer are of no use, and a thread has no more."""
NAMES = {"BM": "m", "BN": "n", "BK": "k", "BD": "d"}
"""What tile sizes are called in a space and as parameters of a kernel, and which extent of the context each is."""


@frozen
class Schedule:
    """Block sizes of M, N and K; warps, pipeline stages, vector width, swizzle of shared memory.

    `block` is (m,), (m, n) or (m, n, k); `d` the extent that is not tiled. What is None is chosen for the machine.
    `max_registers` of a thread and `max_shared` bytes of a CTA allow more CTAs per SM. Schedules are equal when their
    choices are; `lineage` only says how one came from another.

    >>> base = Schedule(block=(128, 128), warps=8, stages=3)
    >>> small = base.with_block(64, 64)
    >>> small.m, small.warps, small.lineage
    (64, 8, ('block (128, 128) -> (64, 64)',))
    >>> Schedule.from_json(small.to_json()) == small
    True
    """

    block: tuple[int, ...] = ()
    d: int | None = None
    warps: int | None = None
    stages: int | None = None
    vector: int | None = None
    swizzle: str | None = None
    triangular: str | None = None
    max_registers: int | None = None
    max_shared: int | None = None
    lineage: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        block: Any = self.block
        if isinstance(block, int):
            block = (block,)
        if not isinstance(block, tuple | list):
            raise ScheduleError(f"`block` is rows, columns and K, got {block!r}", fix="write `block=(128, 128)`")
        object.__setattr__(self, "block", tuple(cast("Any", block)))
        _check(self)

    @property
    def m(self) -> int | None:
        """Rows of a block."""
        return self.block[0] if self.block else None

    @property
    def n(self) -> int | None:
        """Columns of a block."""
        return self.block[1] if len(self.block) > 1 else None

    @property
    def k(self) -> int | None:
        """K of a block."""
        return self.block[2] if len(self.block) > 2 else None

    def with_(self, **changes: Any) -> Schedule:
        """The same schedule with other choices; the lineage grows by one line for each that differs."""
        known = [item.name for item in fields(self) if item.name != "lineage"]
        for name in changes:
            if name not in known:
                raise ScheduleError(f"a schedule has no `{name}`", fix=f"it has {', '.join(known)}")
        made = replace(self, **changes)
        lines = [
            f"{name} {_show(getattr(self, name))} -> {_show(getattr(made, name))}"
            for name in changes
            if getattr(self, name) != getattr(made, name)
        ]
        return replace(made, lineage=(*self.lineage, *lines))

    def with_block(self, *block: int) -> Schedule:
        """Other block sizes; a K that is not given stays."""
        kept = self.block[len(block) :] if len(block) >= 2 else ()
        return self.with_(block=(*block, *kept))

    def with_k(self, k: int) -> Schedule:
        """Another K of a block."""
        if len(self.block) < 2:
            raise ScheduleError("a K block needs blocks of rows and columns first", fix="give `block=(m, n)`")
        return self.with_(block=(*self.block[:2], k))

    def with_warps(self, warps: int) -> Schedule:
        """Other warps."""
        return self.with_(warps=warps)

    def with_stages(self, stages: int) -> Schedule:
        """Another number of pipeline stages."""
        return self.with_(stages=stages)

    def with_vector(self, vector: int) -> Schedule:
        """Another vector width, in elements."""
        return self.with_(vector=vector)

    def with_swizzle(self, swizzle: str) -> Schedule:
        """Another order of shared memory."""
        return self.with_(swizzle=swizzle)

    def triangular_only(self, mask: str) -> Schedule:
        """Only blocks that touch the `lower` or `upper` triangle are computed; all others are zero."""
        return self.with_(triangular=mask)

    def choices(self) -> dict[str, Any]:
        """What is chosen, by name."""
        found = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "lineage"}
        return {name: value for name, value in found.items() if value not in (None, ())}

    def to_json(self) -> str:
        """One line, with the lineage where there is one."""
        values: dict[str, Any] = {**self.choices(), **({"lineage": self.lineage} if self.lineage else {})}
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Schedule:
        """The schedule that `to_json` wrote."""
        try:
            given: Any = json.loads(text)
        except (TypeError, ValueError) as error:
            raise ScheduleError(f"invalid JSON of a schedule: {error}", fix="give what `to_json` gave") from None
        known = [item.name for item in fields(Schedule)]
        values: dict[str, Any] = dict(given) if isinstance(given, dict) else {}  # pyright: ignore[reportUnknownArgumentType]
        if not isinstance(given, dict) or not values.keys() <= set(known):
            raise ScheduleError(
                f"a schedule is {{name: value}} of {', '.join(known)}, got {text}", fix="give what `to_json` gave"
            )
        for name in ("block", "lineage"):
            if name in values:
                values[name] = tuple(values[name])
        return Schedule(**values)

    @property
    def key(self) -> str:
        """A digest of the choices: the same in every process."""
        text = json.dumps(self.choices(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        choices = ", ".join(f"{name}={_show(value)}" for name, value in self.choices().items())
        return f"Schedule({choices})"

    __repr__ = __str__

    def history(self) -> str:
        """The schedule and every step that led to it."""
        return "\n".join([str(self), *(f"  {line}" for line in self.lineage)])


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _check(made: Schedule) -> None:
    """What no machine could carry out; what one machine cannot is `legality`'s to say."""
    if len(made.block) > 3:
        raise ScheduleError(
            f"`block` is at most rows, columns and K, got {made.block}", fix="write `block=(128, 128, 64)`"
        )
    sizes = {**dict(zip(("block m", "block n", "block k"), made.block, strict=False)), "d": made.d}
    counts = {"warps": made.warps, "stages": made.stages, "vector": made.vector}
    for name, value in {**sizes, **counts}.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(f"`{name}` is an integer, got {value!r}", fix=f"give `{name}` a number, such as 4")
        if value < 1:
            raise ScheduleError(f"`{name}` must be at least 1, got {value}", fix=f"give `{name}` a number, such as 4")
    for name, value in (("warps", made.warps), ("vector", made.vector)):
        if value is not None and value & (value - 1):
            near = 1 << (value.bit_length() - 1)
            raise ScheduleError(f"`{name}` must be a power of two, got {value}", fix=f"write {name}={near}")
    _check_caps(made)
    words: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
        ("swizzle", made.swizzle, SWIZZLES),
        ("triangular", made.triangular, TRIANGLES),
    )
    for name, value, known in words:
        if value is not None and (type(value) is not str or value not in known):
            raise ScheduleError(
                f"`{name}` is one of {', '.join(known)}, got {value!r}", fix=f'write `{name}="{known[-1]}"`'
            )


def _check_caps(made: Schedule) -> None:
    caps = (("max_registers", made.max_registers, *REGISTER_CAPS), ("max_shared", made.max_shared, 0, 1 << 30))
    for name, value, low, high in caps:
        number: Any = value
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if value is not None and not (is_whole and low <= value <= high):
            raise ScheduleError(
                f"`{name}` is an integer from {low} to {high}, got {value!r}", fix=f"write `{name}={high}` or less"
            )


@frozen
class Space:
    """Schedules to choose from: the product of what each choice may be, in order, first choices slowest.

    >>> space = block(m=[64, 128], n=[64]).warps([4, 8]).space
    >>> [str(one) for one in space][0], len(space)
    ('Schedule(block=(64, 64), warps=4)', 4)
    """

    axes: tuple[tuple[str, tuple[Any, ...]], ...]

    @staticmethod
    def of(given: Mapping[str, Any] | Space | Chain | Sequence[Schedule]) -> Space | tuple[Schedule, ...]:
        """A space from names and lists (`dict(BM=[64, 128], warps=[4, 8])`), a chain, or schedules as they are."""
        if isinstance(given, Space):
            return given
        if isinstance(given, Chain):
            return given.space
        if isinstance(given, Mapping):
            named: Mapping[str, Any] = given
            return Space(tuple((_axis(name), _values(values)) for name, values in named.items()))
        listed: tuple[Any, ...] = tuple(given) if isinstance(given, list | tuple) else (given,)
        wrong = [one for one in listed if not isinstance(one, Schedule)]
        if wrong or not listed:
            raise ScheduleError(
                f"a space is names with lists, a chain, or a list of schedules, got {wrong[0] if wrong else given!r}",
                fix="write `space=dict(BM=[64, 128])`",
            )
        return listed

    def __len__(self) -> int:
        total = 1
        for _, values in self.axes:
            total *= len(values)
        return total

    def __iter__(self) -> Iterator[Schedule]:
        names = [name for name, _ in self.axes]
        for point in itertools.product(*(values for _, values in self.axes)):
            yield _schedule_of(dict(zip(names, point, strict=True)))

    def without(self, name: str, value: Any) -> Space:
        """The part of the space where one choice is fixed."""
        return Space(tuple((axis, (value,) if axis == name else values) for axis, values in self.axes))


def _axis(name: str) -> str:
    found = NAMES.get(name, name)
    if found not in ("m", "n", "k", "d", "warps", "stages", "vector", "swizzle", "triangular"):
        raise ScheduleError(
            f"a space has no `{name}`", fix="its names are BM, BN, BK, BD, warps, stages, vector, swizzle, triangular"
        )
    return found


def _values(given: Any) -> tuple[Any, ...]:
    listed: Any = given
    values: tuple[Any, ...] = tuple(listed) if isinstance(given, list | tuple) else (given,)
    if not values:
        raise ScheduleError("a choice of a space has no values")
    return values


def _schedule_of(choices: Mapping[str, Any]) -> Schedule:
    sizes = [choices.get(name) for name in ("m", "n", "k")]
    while sizes and sizes[-1] is None:
        sizes.pop()
    if None in sizes:
        raise ScheduleError("a K block needs rows and columns, and columns need rows", fix="give the blocks before it")
    others = {name: value for name, value in choices.items() if name not in ("m", "n", "k")}
    return Schedule(block=tuple(int(size) for size in sizes if size is not None), **others)


@frozen
class Chain:
    """A schedule being written: each method adds a choice, each choice once; a list makes it a space.

    >>> block(128, 256).k(64).warps(8).stages(3).vector(8).swizzle("xor").schedule
    Schedule(block=(128, 256, 64), warps=8, stages=3, vector=8, swizzle='xor')
    """

    axes: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def _with(self, name: str, given: Any) -> Chain:
        if any(axis == name for axis, _ in self.axes):
            raise ScheduleError(f"`{name}` is chosen twice in one chain")
        return Chain((*self.axes, (name, _values(given))))

    def k(self, size: Any) -> Chain:
        """K of a block."""
        return self._with("k", size)

    def d(self, extent: Any) -> Chain:
        """The extent that is not cut."""
        return self._with("d", extent)

    def warps(self, count: Any) -> Chain:
        """Warps of a program."""
        return self._with("warps", count)

    def stages(self, count: Any) -> Chain:
        """Pipeline stages."""
        return self._with("stages", count)

    def vector(self, width: Any) -> Chain:
        """Elements of one access."""
        return self._with("vector", width)

    def swizzle(self, order: Any) -> Chain:
        """The order of shared memory."""
        return self._with("swizzle", order)

    def triangular_only(self, mask: str) -> Chain:
        """Only the `lower` or `upper` triangle."""
        return self._with("triangular", mask)

    @property
    def space(self) -> Space:
        """All schedules that the chain stands for."""
        return Space(self.axes)

    @property
    def schedule(self) -> Schedule:
        """The one schedule that the chain stands for; raises where it is a space."""
        if len(self.space) != 1:
            raise ScheduleError(
                f"this chain is a space of {len(self.space)} schedules, not one", fix="give it to `kernel.autotune`"
            )
        return next(iter(self.space))


def block(m: Any, n: Any = None, k: Any = None) -> Chain:
    """The start of a chain: rows and columns of a block, each a number or a list of them."""
    chain = Chain()._with("m", m)  # pyright: ignore[reportPrivateUsage]
    if n is not None:
        chain = chain._with("n", n)  # pyright: ignore[reportPrivateUsage]
    return chain if k is None else chain.k(k)


def schedule_of(given: Any) -> Schedule:
    """A schedule from one, or from a chain."""
    if isinstance(given, Chain):
        return given.schedule
    if not isinstance(given, Schedule):
        raise ScheduleError(f"a schedule is needed, got {type(given).__name__}", fix="write `Schedule(block=(m, n))`")
    return given
