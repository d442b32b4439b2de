"""One class per error code, grouped by stage, and the page of each code; codes are assigned nowhere else.

Errors that Python's own types would raise as `IndexError`, `TypeError`, `KeyError` or `ValueError` are of those classes
too, so that code written for lists, dicts and NumPy arrays catches them here as well.
"""

from __future__ import annotations

import os
import re

from tessera.diagnostics.error import CompilationError, TesseraError, find_nearest


class ShapeError(CompilationError, ValueError):
    """Two shapes, or a shape and an op, do not fit."""

    code = "T0101"


class DTypeError(CompilationError, TypeError):
    """An element type is not one the op takes, or two cannot be promoted without loss."""

    code = "T0102"


class AxisError(CompilationError, ValueError, IndexError):
    """An axis is not an axis of the tensor, or is named twice."""

    code = "T0103"


class AnnotationError(CompilationError, TypeError, ValueError):
    """A `Tensor[...]` annotation is not one, or contradicts another."""

    code = "T0104"


class ConstraintError(CompilationError, ValueError):
    """A constraint on sizes is not one, or cannot hold."""

    code = "T0105"


class BroadcastError(CompilationError, ValueError):
    """Two shapes cannot be broadcast."""

    code = "T0106"


class PolicyError(AnnotationError):
    """A numerics policy is not one, or contradicts itself, a type or an op."""

    code = "T0107"


class EffectError(CompilationError):
    """An effect is not one, or code has one that it may not have."""

    code = "T0108"


class IndexRangeError(ShapeError, IndexError):
    """An index is out of range, or is none, or has more positions than the tensor has axes."""

    code = "T0109"


class TracingError(CompilationError, TypeError):
    """The function needs the value of a tensor that has none while tracing."""

    code = "T0201"


class ArgumentError(CompilationError, TypeError, ValueError):
    """An argument of an op is not of the kind that it takes."""

    code = "T0202"


class EscapedTracerError(CompilationError, RuntimeError):
    """A leaked tracer: a traced tensor was used after its trace had ended."""

    code = "T0203"


class PytreeError(CompilationError, TypeError, ValueError):
    """A value is not a tensor, nor a tree of tensors, or two trees differ in form."""

    code = "T0204"


class SpecializationError(CompilationError, TypeError, ValueError):
    """The function would specialize a dim that is declared symbolic."""

    code = "T0205"


class DeterminismError(CompilationError):
    """An op whose runs may differ is used where all runs must be the same."""

    code = "T0208"


class KernelError(CompilationError):
    """A kernel uses what the kernel language lacks, or what has no meaning in it."""

    code = "T0206"


class GraphVerifyError(CompilationError):
    """A `tgraph` module breaks a rule of the dialect."""

    code = "T0301"


class EffectOrderError(CompilationError):
    """Ranks could reach collectives in different orders, and would deadlock."""

    code = "T0302"


class VersionError(CompilationError, ValueError):
    """A text or file was written by a version this one does not read."""

    code = "T0303"


class IRSyntaxError(CompilationError, ValueError):
    """Text is not IR."""

    code = "T0304"


class RangeError(CompilationError, ValueError):
    """A value can leave the bound it is declared to keep, or overflow its type."""

    code = "T0305"


class DifferentiationError(CompilationError, TypeError):
    """A derivative is asked for where there is none, or where nobody gave one."""

    code = "T0306"


class ShardingError(CompilationError, ValueError):
    """A tensor cannot be sharded as somebody asks, or shardings of a program contradict each other."""

    code = "T0307"


class ScheduleError(CompilationError, ValueError):
    """A `tsched` module breaks a rule of the dialect, or a schedule cannot be carried out."""

    code = "T0401"


class OverrideError(CompilationError, KeyError, TypeError, ValueError):
    """An override names no choice, or gives it a value it cannot have."""

    code = "T0402"


class FusionError(CompilationError):
    """Ops that were demanded to be one kernel cannot be."""

    code = "T0403"


class MemoryBudgetError(CompilationError, MemoryError):
    """A program needs more memory than it is allowed, whatever it rematerializes."""

    code = "T0404"


class TileVerifyError(CompilationError):
    """A `ttile` kernel breaks a rule of the dialect."""

    code = "T0501"


class BoundsError(CompilationError, IndexError):
    """A kernel accesses memory outside a tensor."""

    code = "T0502"


class RaceError(CompilationError):
    """A race: two programs of a kernel, or two workers of a program, access one location and at least one writes it."""

    code = "T0503"


class BlockValueError(CompilationError):
    """A result of a kernel depends on the size of its blocks."""

    code = "T0504"


class TargetVerifyError(CompilationError):
    """A `ttarget` kernel breaks a rule of the dialect or a limit of the machine."""

    code = "T0601"


class FeatureError(CompilationError):
    """A kernel uses an instruction that the machine lacks."""

    code = "T0602"


class CodegenError(CompilationError):
    """The code generator refused a kernel, or died on it."""

    code = "T0603"


class RuntimeArgumentError(TesseraError, TypeError, ValueError):
    """A call's arguments do not fit the compiled function."""

    code = "T0701"


class GuardError(TesseraError, ValueError):
    """A fact that the compiled code relies on does not hold for these arguments."""

    code = "T0702"


class CacheError(TesseraError):
    """The cache folder cannot be used."""

    code = "T0703"


class LoadError(TesseraError):
    """An executable is damaged, or is for another machine."""

    code = "T0704"


class SettingsError(TesseraError, ValueError):
    """A `TESSERA_*` variable has a value it cannot have."""

    code = "T0705"


class OperatorError(TesseraError, TypeError, ValueError):
    """A tensor has no such operation, or no backend for it."""

    code = "T0706"


class OutOfMemoryError(TesseraError, MemoryError):
    """A tensor, or what a compiled function needs beside its tensors, does not fit into memory."""

    code = "T0707"


class DeviceError(TesseraError, RuntimeError):
    """A device is missing, or refused what it was asked to do."""

    code = "T0720"


class CaptureError(DeviceError):
    """A program cannot be part of a CUDA graph: while it is captured nothing runs that the host could wait for."""

    code = "T0717"


class CallbackError(TesseraError):
    """A Python function that a program calls returns something else than it declares, or may not be called here."""

    code = "T0709"


class PositionError(TesseraError, IndexError):
    """An out-of-bounds index, where it is neither clamped nor dropped."""

    code = "T0710"


class StreamRaceError(TesseraError):
    """Unordered accesses of two CUDA streams: they share bytes, at least one writes, and nothing orders them."""

    code = "T0711"


class RankError(TesseraError):
    """A collective failed: a rank left, did not come in time, is at another collective, or was never started."""

    code = "T0712"


class DonatedError(TesseraError, RuntimeError):
    """A tensor is used that was donated to a call, which has consumed it."""

    code = "T0713"


class FileFormatError(TesseraError, ValueError):
    """A file of tensors or tokens is damaged, truncated, or has another format."""

    code = "T0714"


class CheckpointError(TesseraError, ValueError):
    """A checkpoint is missing, or does not fit what it is to be restored into."""

    code = "T0715"


class DataLoaderError(TesseraError, RuntimeError):
    """A data loader cannot give its next batch: a worker process failed, or an item does not fit."""

    code = "T0716"


class NumericsError(TesseraError, FloatingPointError):
    """A result breaks what was promised of its values: finite, or within bounds."""

    code = "T0708"


class TuningFileError(TesseraError, ValueError):
    """A file of tuned plans is damaged, has another format, or holds what no plan can be."""

    code = "T0801"


class TuningRanksError(TesseraError, RuntimeError):
    """Ranks of a mesh tune different programs, or rank 0 could not choose a plan."""

    code = "T0802"


class TuningError(TesseraError, ValueError):
    """What is to be tuned cannot be: a constraint or space says nothing, or a program must not run twice."""

    code = "T0803"


class SearchError(TesseraError, ValueError):
    """A search for a plan cannot be made: its mode or budget is none, or what it measures cannot be built."""

    code = "T0810"


def all_codes() -> dict[str, type[TesseraError]]:
    """Every code and its class, in order."""
    found = [value for value in globals().values() if isinstance(value, type) and issubclass(value, TesseraError)]
    return {cls.code: cls for cls in sorted(found, key=lambda cls: cls.code) if cls.code}


def pages_folder() -> str:
    """Where the pages of codes are: beside this file when installed, in `docs/errors` in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "pages")
    return installed if os.path.isdir(installed) else os.path.join(here, "..", "..", "docs", "errors")


def explain(code: str) -> str:
    """The page of `code` in `docs/errors`: a failing program and its fix, in Markdown.

    `t0101` and `101` will do too, and so will the name of its class, `ShapeError`.

    Raises KeyError, naming the nearest codes or classes, when there is none.
    """
    known = all_codes()
    classes = {cls.__name__.lower(): name for name, cls in known.items()}
    word = code.strip().rpartition(".")[2]
    name = classes.get(word.lower(), f"T{word.upper().removeprefix('T').rjust(4, '0')}")
    if name not in known and word.isidentifier() and not re.fullmatch(r"[tT]?\d*", word):
        names = [cls.__name__ for cls in known.values()]
        alike = find_nearest(word, names, 3) or [cls.__name__ for cls in list(known.values())[:3]]
        raise KeyError(f"no error is called `{code}`; there are {', '.join(alike)}; `tessera explain` lists them all")
    if name not in known:
        alike = [other for other in known if other[:3] == name[:3]] or sorted({other[:3] + "xx" for other in known})
        raise KeyError(
            f"no error has the code `{code}`; there are {', '.join(alike)}; `tessera explain` lists them all"
        )
    with open(os.path.join(pages_folder(), f"{name}.md"), encoding="utf-8") as page:
        return page.read()
