"""What plans of a program should take, before any of them is compiled: choices of knobs become work of kernels.

Each group asks for its tiles with a context: its dims, dtype and bytes. From that and a choice follows how many blocks
there are, what each moves and how much of it is computed for nothing. A backend that models its machine more closely
says the time of a candidate itself (`Backend.times`); the features are the general model's either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tessera.compiler.backend import backend_of
from tessera.compiler.space import GroupPart, ProgramSpace, TunableKnob
from tessera.tuner.cost_model import Hardware, KernelWork, Predict, Prediction, predict_kernel
from tessera.tuner.machine_rates import machine_rates
from tessera.tuner.records import Plan
from tessera.types.dim import Dim
from tessera.types.machine import Machine, Usage
from tessera.types.rates import Rates

_TYPICAL = 1024
"""What a symbolic dim is taken to be where a call does not say."""
_STAGES = 4
"""Stages that copies of a contraction have where nobody says."""
_REGISTERS = 65536
"""Of a multiprocessor, which one block of tensor cores takes nearly all of."""
_WARPGROUP = 64
"""Rows of an instruction of tensor cores; blocks of other rows are multiplied by threads."""
_ROW_LEAF = 1024
"""Elements of a row that one program reduces together where several share it."""
Sizes = Mapping[str, int]
Chosen = Mapping[str, Any]


def predictor(space: ProgramSpace, sizes: Sizes | None = None, rates: Rates | None = None) -> Predict | None:
    """Predicts plans of a program on the machine that it is compiled for; None where nobody knows its rates."""
    machine = _machine_of(space)
    found = rates or machine_rates(machine.name.removeprefix("cuda-") if machine.is_gpu else "cpu")
    if found is None:
        return None
    hardware = Hardware(found, machine.multiprocessor)
    times = backend_of(space.options.backend).times
    contexts = {knob.key: knob for knob in space.knobs}
    defaults = {knob.key: knob.default for knob in space.knobs}

    def predict(plan: Plan) -> Prediction | None:
        chosen = {**defaults, **plan.overrides}
        listed = [_predict_group(group, chosen, contexts, hardware, times, sizes or {}) for group in space.groups]
        parts = [(calls, one) for calls, one in listed if calls]
        if not parts:
            return None
        time = sum(calls * one.time for calls, one in parts)
        features: dict[str, float] = {}
        for calls, one in parts:
            for name, value in one.features:
                features[name] = features.get(name, 0.0) + value * calls * one.time / time
        return Prediction.of(time, features, max(parts, key=lambda part: part[0] * part[1].time)[1].bound)

    return predict


def _machine_of(space: ProgramSpace) -> Machine:
    for knob in space.knobs:
        if "machine" in knob.context:
            return knob.context["machine"]
    return Machine("generic")


def _predict_group(
    group: GroupPart,
    chosen: Chosen,
    knobs: Mapping[str, TunableKnob],
    hardware: Hardware,
    times: Mapping[str, Callable[..., float | None]],
    sizes: Sizes,
) -> tuple[int, Prediction]:
    """How often a group is called, and what one call should take under the choices of its location."""
    location = group.location_at(sizes)
    here = _choices_at(location, chosen)
    work = _plain_work(group, sizes)
    exact: float | None = None
    for name, value in here.items():
        knob = knobs.get(f"{name}@{location}")
        if knob is None:
            continue
        if name in WORKS:
            work = WORKS[name](work, value, knob.context, here, group)
        if name in times:
            exact = times[name](value, knob.context, here)
    general = predict_kernel(work, hardware)
    if exact is None or not math.isfinite(general.time):
        return group.count_calls(sizes), general
    return group.count_calls(sizes), Prediction(exact + hardware.rates.launch, general.features, general.bound)


def _choices_at(location: str, chosen: Chosen) -> dict[str, Any]:
    """Choices by knob alone; those of one location before those of all."""
    found = {key: value for key, value in chosen.items() if "@" not in key}
    for key, value in chosen.items():
        name, _, where = key.partition("@")
        if where == location:
            found[name] = value
    return found


def _plain_work(group: GroupPart, sizes: Sizes) -> KernelWork:
    """What a group does whatever is chosen: its bytes in and out, and elements to compute."""
    types = [group.tape.types[value] for value in (*group.tape.inputs, *group.tape.outputs)]
    moved = float(sum(math.prod(_size(dim, sizes) for dim in one.shape) * one.dtype.bits / 8 for one in types))
    last = types[-1]
    elements = math.prod(_size(dim, sizes) for dim in last.shape)
    return KernelWork(flops=float(elements), memory=moved, l2=moved, blocks=max(1, elements // 4096))


def _size(dim: Any, sizes: Sizes) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Dim) and set(dim.symbols) <= set(sizes):
        return max(1, dim.evaluate({name: sizes[name] for name in dim.symbols}))
    return _TYPICAL


def contraction_work(
    work: KernelWork, block: Any, context: Mapping[str, Any], here: Chosen, group: GroupPart
) -> KernelWork:
    """A contraction of M x N x K in blocks: what reaches over its edges is computed for nothing.

    Every block reads BM rows of one operand and BN of the other; together they ask L2 for that, and memory once.
    """
    BM, BN, BK = block
    m, n, k, batch = (_size(context.get(name, 1), {}) for name in ("m", "n", "k", "batch"))
    dtype, machine = context.get("dtype"), context["machine"]
    bytes = 2 if dtype is None else dtype.bytes
    blocks = batch * -(-m // BM) * -(-n // BN)
    steps = -(-k // BK)
    stages = int(here.get("pipeline.stages") or _STAGES)
    stage = (BM + BN) * BK * bytes
    usage = work.usage
    if machine.is_gpu:
        stages = max(1, min(stages, machine.shared // stage)) if machine.shared else stages
        threads = 128 * (min(3, max(1, BM // _WARPGROUP)) + 1)
        usage = Usage(threads, min(248, _REGISTERS // threads // 8 * 8), min(stages * stage, machine.shared - 1024))
    return replace(
        work,
        flops=2.0 * blocks * BM * BN * steps * BK,
        kind=_kind(context) if BM % _WARPGROUP == 0 else "f32",
        l2=float(blocks * (BM + BN) * steps * BK * bytes),
        shared=float(blocks * 2 * (BM + BN) * steps * BK * bytes),
        blocks=blocks,
        usage=usage,
        in_flight=float(stages * stage),
    )


def _kind(context: Mapping[str, Any]) -> str:
    """What computes a contraction; tensor cores of 8 bits are not in every table of rates."""
    dtype = context.get("dtype")
    name = "f32" if dtype is None else dtype.name
    machine = context["machine"]
    return name if machine.is_gpu and name in ("bf16", "f16") else "f32"


def row_work(work: KernelWork, runs: Any, context: Mapping[str, Any], here: Chosen, group: GroupPart) -> KernelWork:
    """Rows by one program each, or shared by several, which meet in a second kernel.

    Leaves of a row wait for one another on a GPU; a CPU reads ahead.
    """
    rows, extent = _size(context.get("programs", 1), {}), _size(context.get("extent", 1), {})
    waits = context["machine"].is_gpu
    if not runs:
        return replace(work, blocks=rows, steps=max(1, extent // _ROW_LEAF) if waits else 1)
    parts = max(1, extent // (_ROW_LEAF * runs))
    return replace(
        work, blocks=rows * parts, steps=runs if waits else 1, launches=2, memory=work.memory + 8.0 * rows * parts
    )


def attention_work(
    work: KernelWork, queries: Any, context: Mapping[str, Any], here: Chosen, group: GroupPart
) -> KernelWork:
    """Attention in blocks of queries, each of which reads all keys and values."""
    shapes = [[_size(dim, {}) for dim in group.tape.types[value].shape] for value in group.tape.inputs[:2]]
    if len(shapes) < 2 or len(shapes[0]) < 2 or len(shapes[1]) < 2:
        return work
    length, width = shapes[0][-2:]
    keys, heads = shapes[1][-2], math.prod(shapes[0][:-2])
    dtype = group.tape.types[group.tape.inputs[0]].dtype
    blocks = heads * -(-length // queries)
    return replace(
        work,
        flops=4.0 * blocks * queries * keys * width,
        kind=_kind({"dtype": dtype, "machine": context["machine"]}),
        l2=blocks * (2.0 * queries + 2 * keys) * width * dtype.bytes,
        blocks=blocks,
        steps=-(-keys // 128),
    )


WORKS: Mapping[str, Callable[[KernelWork, Any, Mapping[str, Any], Chosen, GroupPart], KernelWork]] = {
    "contraction.block": contraction_work,
    "row.runs": row_work,
    "attention.queries": attention_work,
}
"""What a choice makes of the work of a group, by knob."""
