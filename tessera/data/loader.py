"""`Loader`: batches of a dataset in an order that a key determines, made by worker processes, from any point on."""

from __future__ import annotations

import fcntl
import os
import pickle
import pickletools
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tessera.data.batches import BatchPlan, receive, send
from tessera.data.datasets import Dataset, key_of
from tessera.diagnostics.codes import ArgumentError, DataLoaderError
from tessera.diagnostics.error import TesseraError
from tessera.diagnostics.frames import guard_class
from tessera.frontend.arguments import check_bool, check_int

VERSION = 1
_ROOT = str(Path(__file__).resolve().parents[2])
_PIPE_BYTES = 1 << 20  # the most that Linux gives to everybody
_END_SECONDS = 2.0
"""How long a worker that is asked to end may take before it is killed."""


@guard_class
class Loader:
    """Batches of `batch_size` items of a dataset, in an order that `key` and the number of the epoch determine.

    A dataset is anything with a length and items by number: arrays and numbers, in tuples, lists and dicts, which
    are stacked; one with a method `take(indices)` makes whole batches itself. Each `for` loop is (the rest of) one
    epoch, and with `repeat` it has no end. `state()` is where it is, as a few numbers, and `restore` continues there,
    in the middle of an epoch too.

    With `workers`, that many processes make batches, `prefetch` each ahead; batches and their order are the same for
    any number of them. A worker imports the module that the dataset's class is from, and does not run the program, so
    that no `if __name__ == "__main__":` is needed. `collate` joins a list of items instead of stacking them.

    Raises: DataLoaderError (T0716) where an item cannot be had, or items do not fit together.

    >>> loader = ts.data.Loader([{"x": number} for number in range(10)], 4, key=0)
    >>> [batch["x"].shape for batch in loader], loader.epoch
    ([(4,), (4,)], 1)
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        key: Any = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        repeat: bool = False,
        workers: int = 0,
        prefetch: int = 2,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ArgumentError(
                f"`Loader` takes a dataset with a length and items by number, got {type(dataset).__name__}",
                fix="give a list, an array, or a class with `__len__` and `__getitem__`",
            )
        for name, value, least in (("batch_size", batch_size, 1), ("workers", workers, 0), ("prefetch", prefetch, 1)):
            if check_int("Loader", name, value) < least:
                raise ArgumentError(f"`Loader` takes `{name}` from {least}, got {value}")
        for name, flag in (("shuffle", shuffle), ("drop_last", drop_last), ("repeat", repeat)):
            check_bool("Loader", name, flag)
        self.plan = BatchPlan(dataset, batch_size, key_of(key), shuffle, drop_last, collate)
        if not self.plan.count:
            raise ArgumentError(
                f"a dataset of {len(dataset)} items has no batch of {batch_size}",
                fix="give a smaller `batch_size`, or `drop_last=False`",
            )
        self.repeat, self._prefetch = repeat, prefetch
        self.epoch = self.batch = 0
        """The batch that comes next: its epoch, and its number in it."""
        self._loops = 0
        self._size, self._workers = workers, list[_Worker]()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.plan.count

    def state(self) -> dict[str, Any]:
        """Where it is, as values that JSON has: what comes next, and what the loader was made with."""
        return {"version": VERSION, "epoch": self.epoch, "batch": self.batch, **self._identity()}

    def _identity(self) -> dict[str, Any]:
        plan = self.plan
        numbers = {"items": len(plan.dataset), "batch_size": plan.size, "key": list(plan.key)}
        return {**numbers, "shuffle": plan.is_shuffled, "drop_last": plan.drops_last}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; raises DataLoaderError (T0716) where it is that of another loader."""
        if state.get("version") != VERSION:
            raise DataLoaderError(
                f"the state of a loader has version {VERSION}, got {state.get('version')!r}",
                fix="give what `loader.state()` returned",
            )
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise DataLoaderError(
                    f"the state is of a loader with `{name}` {state.get(name)}, and this one has {own}",
                    notes=("rule: with another order or other batches, a number of a batch says nothing",),
                    fix="make the loader as it was, or start a new epoch without `restore`",
                )
        epoch, batch = check_int("restore", "epoch", state["epoch"]), check_int("restore", "batch", state["batch"])
        if epoch < 0 or not 0 <= batch < len(self):
            raise DataLoaderError(f"there is no batch {batch} of epoch {epoch}: an epoch has {len(self)}")
        self.epoch, self.batch = epoch, batch
        self._loops += 1

    def __iter__(self) -> Iterator[Any]:
        self._loops += 1
        return self._iterate(self._loops)

    def _iterate(self, loop: int) -> Iterator[Any]:
        made = self._prefetch_batches() if self._size else self._make_batches()
        for epoch, number, batch in made:
            if loop != self._loops:
                raise DataLoaderError(
                    "a loop over this loader continues after another one has begun, or `restore` was called",
                    fix="make one loader for each, or finish one loop before the next",
                )
            # Before it is passed on: who takes a state while working on a batch does not want it again.
            self.epoch, self.batch = (epoch, number + 1) if number + 1 < len(self) else (epoch + 1, 0)
            yield batch

    def _positions(self) -> Iterator[tuple[int, int]]:
        epoch, batch = self.epoch, self.batch
        while True:
            for number in range(batch, len(self)):
                yield epoch, number
            epoch, batch = epoch + 1, 0
            if not self.repeat:
                return

    def _make_batches(self) -> Iterator[tuple[int, int, Any]]:
        for epoch, number in self._positions():
            try:
                batch = self.plan.make(epoch, number)
            except DataLoaderError:
                raise
            except Exception as error:
                reason = error.message if isinstance(error, TesseraError) else f"{type(error).__name__}: {error}"
                raise _failure(epoch, number, self.plan.indices(epoch, number), reason) from error
            yield epoch, number, batch

    def _prefetch_batches(self) -> Iterator[tuple[int, int, Any]]:
        """Batches in order; worker `n` makes every `workers`-th, so that each one's answers come in order too."""
        workers, pending = self._start(), deque[tuple[_Worker, int, int]]()
        for at, (epoch, number) in enumerate(self._positions()):
            worker = workers[at % len(workers)]
            worker.request(epoch, number)
            pending.append((worker, epoch, number))
            if len(pending) >= len(workers) * self._prefetch:
                yield self._receive(*pending.popleft())
        while pending:
            yield self._receive(*pending.popleft())

    def _receive(self, worker: _Worker, epoch: int, number: int) -> tuple[int, int, Any]:
        try:
            answer = worker.receive()
        except EOFError:
            how = worker.how_it_ended()
            self.close()
            raise DataLoaderError(
                f"a worker process {how} while it made batch {number} of epoch {epoch}",
                notes=("what it printed is in the output of this process",),
                fix="see whether memory ran out; `workers=0` makes batches in this process",
            ) from None
        if "batch" in answer:
            return epoch, number, answer["batch"]
        if isinstance(answer["error"], DataLoaderError):
            raise answer["error"]
        indices, cause = self.plan.indices(epoch, number), answer["error"]
        raise _failure(epoch, number, indices, answer["reason"], answer["trace"]) from cause

    def _start(self) -> list[_Worker]:
        """The workers, with nothing left to say of loops before this one."""
        if any(worker.process.poll() is not None for worker in self._workers):
            self.close()
        if not self._workers:
            data = _pickle_plan(self.plan)
            for _ in range(self._size):
                self._workers.append(_Worker(data))
        for worker in self._workers:
            try:
                worker.drain()
            except EOFError:
                self.close()
                return self._start()
        return self._workers

    def close(self) -> None:
        """End the worker processes; the next loop starts new ones."""
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()
        self._workers = []

    def __repr__(self) -> str:
        where = f"epoch {self.epoch}, batch {self.batch} of {len(self)}"
        return f"Loader({type(self.plan.dataset).__name__}, {self.plan.size} items a batch, at {where})"


def _failure(epoch: int, number: int, indices: list[int], reason: str, trace: str = "") -> DataLoaderError:
    shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
    return DataLoaderError(
        f"batch {number} of epoch {epoch} cannot be made: {reason}",
        notes=(f"its items are {shown}", *([f"in a worker process: {trace.strip()}"] if trace else [])),
        fix="see what the dataset does with these items: `dataset[index]`",
    )


def _pickle_plan(plan: BatchPlan) -> bytes:
    """What workers are sent; raises DataLoaderError (T0716) for what another process cannot have."""
    fields = {name: getattr(plan, name) for name in ("dataset", "size", "key", "is_shuffled", "drops_last", "collate")}
    try:
        data = pickle.dumps(fields)
    except Exception as error:
        raise DataLoaderError(
            f"the dataset cannot be sent to worker processes: {type(error).__name__}: {error}",
            fix="keep open files, locks and lambdas out of it, or write `workers=0`",
        ) from error
    words = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    if any(word.split(" ")[0] == "__main__" for word in words):
        raise DataLoaderError(
            "the dataset, or `collate`, is defined in the program itself, which worker processes do not run",
            fix="move it into a module, and import it from there; or write `workers=0`",
        )
    return data


class _Worker:
    """A process that makes batches, one request after the other; `waiting` are the answers not taken yet."""

    def __init__(self, plan: bytes) -> None:
        theirs_in, self._requests = os.pipe()
        self._replies, theirs_out = os.pipe()
        with suppress(OSError):  # a larger pipe is a favour, and not everybody gets one
            fcntl.fcntl(theirs_out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tessera.data", str(theirs_in), str(theirs_out)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs_in, theirs_out),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except BaseException:
            os.close(self._requests)
            os.close(self._replies)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.waiting = 0
        # Whoever forgets to close the loader leaves no process behind: a worker whose pipe ends does too.
        self._finalizer = weakref.finalize(self, _end_process, self.process, self._requests, self._replies)
        self._send({"path": sys.path, "plan": plan})

    def _send(self, value: Any) -> None:
        with suppress(BrokenPipeError):  # it has died, which is found where its answer is awaited
            send(self._requests, value)

    def request(self, epoch: int, number: int) -> None:
        """Ask for a batch."""
        self._send((epoch, number))
        self.waiting += 1

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest request; raises EOFError where the process has ended."""
        answer = receive(self._replies)
        self.waiting -= 1
        return answer

    def drain(self) -> None:
        """Take the answers that nobody waits for any more."""
        while self.waiting:
            self.receive()

    def how_it_ended(self) -> str:
        """In words, for an error."""
        try:
            code = self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def ask_to_end(self) -> None:
        """Kill it where it works on something; one that waits sees the end of its pipe."""
        if self.waiting:
            self.process.kill()

    def end(self) -> None:
        """Close the pipes, and wait until the process is gone."""
        self._finalizer()


def _end_process(process: subprocess.Popen[bytes], *descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
