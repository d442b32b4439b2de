"""x86-64 (Intel SDM, AMD64 APM): SSE2, AVX2 and AVX-512 registers, as levels of the psABI, and AMX beyond them."""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.target.architectures import CpuArchitecture, CpuLevel, CpuMatrixInstruction
from tessera.types import dtype as dt

_AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_AMX = ("amx-tile", "amx-int8", "amx-bf16")
_V4 = CpuLevel(
    "x86-64-v4",
    "avx512f",
    lanes=16,
    registers=32,
    features=(*_AVX2, *_AVX512),
    has_narrow_masks=True,  # AVX-512BW: vmovdqu8/16 with a mask
    has_wide_multiply=True,  # AVX-512DQ: vpmullq
    scale_intrinsic="x86.avx512.mask.scalef.{suffix}.512",
)

ARCHITECTURE = CpuArchitecture(
    name="x86_64",
    triple="x86_64-unknown-linux-gnu",
    # Registers: Intel SDM vol. 1, section 3.4 (16 of 128 bits), chapters 14 (AVX) and 15 (32 of 512 bits).
    levels=(
        # Eight tiles of 16 rows of 64 bytes beside them: chapter 18. No level of the psABI has them.
        replace(_V4, name="x86-64-v4-amx", features=(*_V4.features, *_AMX), cpu=_V4.name),
        _V4,
        CpuLevel("x86-64-v3", "avx2", lanes=8, registers=16, features=_AVX2),
        CpuLevel("x86-64", "sse2", lanes=4, registers=16, features=("sse2",)),
    ),
    features={
        **dict.fromkeys(("sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2"), ""),
        **dict.fromkeys(("fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "avxvnni"), ""),
        "avx512f": "avx2",
        **dict.fromkeys(("avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16"), "avx512f"),
        **dict.fromkeys(("avx512fp16", "avx512vbmi", "avx512vbmi2", "avx512ifma", "avx512bitalg"), "avx512f"),
        "amx-tile": "avx512f",
        **dict.fromkeys(("amx-bf16", "amx-int8", "amx-fp16"), "amx-tile"),
    },
    # x86-64 psABI, section 3.1.1, "Processor Architecture".
    first_levels={
        "x86-64-v2": ("popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"),
        "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
        "x86-64-v4-amx": _AMX,  # ours: Sapphire Rapids and what follows it
    },
    support_cpu="x86-64-v2",
    flag_names={
        "sse4_2": "sse4.2",
        "bmi1": "bmi",
        "abm": "lzcnt",
        "amx_tile": "amx-tile",
        "amx_int8": "amx-int8",
        "amx_bf16": "amx-bf16",
        "amx_fp16": "amx-fp16",
    },
    # Intel SDM vol. 2, TDPBSSD and TDPBF16PS. Those of bf16 add pairs along K in another order than a chain of FMAs.
    matrix_instructions=(
        CpuMatrixInstruction(
            *("amx-int8", 16, range(16, 17), 64), operands=(dt.i8, dt.u8), accumulator=dt.i32, is_exact=True
        ),
        CpuMatrixInstruction(*("amx-bf16", 16, range(16, 17), 64), operands=(dt.bf16,), accumulator=dt.f32),
    ),
)
