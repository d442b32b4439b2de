"""The thread pool: every task once, callers in parallel, nested calls, changing thread counts, forks."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tessera.runtime.loader import LinkedCode, link
from tessera.runtime.native.support import Support
from tests.runtime.programs import compile_text

ROOT = Path(__file__).parents[2]
NUMBERED = 1 << 62  # these kernels know a task by its number (4611686018427387920 is 16 of them): none is run in parts

# Counts each task, notes its scratch and its thread, fills its scratch, and takes a while.
KERNELS = """
declare i64 @pthread_self()
declare ptr @memset(ptr, i32, i64)
declare i64 @tessera_pool_run(ptr, ptr, i64, i64)

define void @note(ptr %counts, i64 %task, i64 %tasks, ptr %scratch) {
entry:
  %count.at = getelementptr i64, ptr %counts, i64 %task
  %old = atomicrmw add ptr %count.at, i64 1 monotonic
  %second = add i64 %task, %tasks
  %scratch.at = getelementptr i64, ptr %counts, i64 %second
  store ptr %scratch, ptr %scratch.at
  %third = add i64 %second, %tasks
  %thread.at = getelementptr i64, ptr %counts, i64 %third
  %thread = call i64 @pthread_self()
  store i64 %thread, ptr %thread.at
  %fill = trunc i64 %task to i32
  %filled = call ptr @memset(ptr %scratch, i32 %fill, i64 100)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %i.next = add i64 %i, 1
  store volatile i64 %i, ptr %scratch
  %more = icmp slt i64 %i.next, 20000
  br i1 %more, label %loop, label %done
done:
  ret void
}
; Programs total * task / tasks up to those of the next task, as kernels divide them; the first hundred take a while.
define void @cover(ptr %counts, i64 %task, i64 %tasks, ptr %scratch) {
entry:
  %total = load i64, ptr %counts
  %calls.at = getelementptr i64, ptr %counts, i64 1
  %calls = atomicrmw add ptr %calls.at, i64 1 monotonic
  %a = mul i64 %total, %task
  %low = udiv i64 %a, %tasks
  %after = add i64 %task, 1
  %b = mul i64 %total, %after
  %high = udiv i64 %b, %tasks
  br label %head
head:
  %i = phi i64 [ %low, %entry ], [ %i.next, %next ]
  %more = icmp slt i64 %i, %high
  br i1 %more, label %body, label %done
body:
  %at = add i64 %i, 2
  %count.at = getelementptr i64, ptr %counts, i64 %at
  %old = atomicrmw add ptr %count.at, i64 1 monotonic
  %slow = icmp slt i64 %i, 100
  br i1 %slow, label %wait, label %next
wait:
  %ignored = call i32 @usleep(i32 1000)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %head
done:
  ret void
}
declare i32 @usleep(i32)
define void @count(ptr %counts, i64 %task, i64 %tasks, ptr %scratch) {
  %count.at = getelementptr i64, ptr %counts, i64 %task
  %old = atomicrmw add ptr %count.at, i64 1 monotonic
  ret void
}
define void @nested(ptr %counts, i64 %task, i64 %tasks, ptr %scratch) {
  %missing = call i64 @tessera_pool_run(ptr @count, ptr %counts, i64 4611686018427387920, i64 0)
  ret void
}
"""


@cache
def link_objects(table_owner: Support) -> LinkedCode:
    return link([compile_text(KERNELS)], table_owner.code.symbols)


def run(support: Support, kernel: str, tasks: int, scratch: int, words: int) -> list[int]:
    counts = (ctypes.c_int64 * max(1, words))()
    code = link_objects(support)  # held while it runs: two threads may both have link_objects it
    assert support.pool_run(code.address(kernel), ctypes.addressof(counts), tasks | NUMBERED, scratch) == 0
    return list(counts)[:words]


def print_rows(program: str) -> str:
    """What a program prints in a process of its own, which must end well."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def threads(support: Support) -> Iterator[Support]:
    """The support code, with its thread count put back afterwards."""
    before = support.threads()
    yield support
    support.configure(before)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [0, 1, 2, 5, 100, 3000])
def test_every_task_runs_once_with_scratch_of_its_thread(threads: Support, count: int, tasks: int) -> None:
    threads.configure(count)
    assert threads.threads() == count
    for _ in range(3):
        notes = run(threads, "note", tasks, 100, 3 * tasks)
        counts, scratches, owners = notes[:tasks], notes[tasks : 2 * tasks], notes[2 * tasks :]
        assert counts == [1] * tasks
        assert all(scratch % 64 == 0 for scratch in scratches)
        # One thread, one scratch; two threads, two scratches.
        assert len({*zip(scratches, owners, strict=True)}) == len({*scratches}) == len({*owners}) <= count


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("total", "tasks"), [(1, 1), (3, 2), (7, 7), (1000, 8), (1000, 3), (5, 40)])
def test_tasks_in_parts_run_every_program_once(threads: Support, count: int, total: int, tasks: int) -> None:
    threads.configure(count)
    notes = (ctypes.c_int64 * (total + 2))(total)
    address = link_objects(threads).address("cover")
    assert threads.pool_run(address, ctypes.addressof(notes), tasks, 0) == 0
    assert list(notes)[2:] == [1] * total
    if tasks > 1:
        assert notes[1] > tasks  # in parts


def test_scratch_grows_when_a_later_kernel_wants_more(threads: Support) -> None:
    threads.configure(2)
    for size in (100, 1 << 12, 1 << 20, 100, 3 << 20):
        assert run(threads, "note", 50, size, 150)[:50] == [1] * 50


@pytest.mark.parametrize(("scratch", "missing"), [(1 << 50, 1 << 50), (-1, (1 << 63) - 1)])
def test_without_memory_for_scratch_nothing_runs_and_the_caller_is_told(
    threads: Support, scratch: int, missing: int
) -> None:
    counts, code = (ctypes.c_int64 * 8)(), link_objects(threads)
    used = threads.memory.in_use
    for count in (1, 3):
        threads.configure(count)
        assert threads.pool_run(code.address("count"), ctypes.addressof(counts), 8, scratch) == missing
    assert list(counts) == [0] * 8
    assert threads.memory.in_use == used
    assert run(threads, "count", 8, 100, 8) == [1] * 8


# The address space is bounded so that it holds one scratch, and for no second one.
SHORT = """
    import resource
    from tessera.runtime.native.support import load_support
    from tests.runtime.programs import compile_text
    from tests.runtime.test_pool import link_objects, run

    support = load_support(compile_text)
    support.configure(4)
    assert run(support, "count", 50, 0, 50) == [1] * 50
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (96 << 20),) * 2)
    for _ in range(5):
        notes = run(support, "note", 50, 64 << 20, 150)
        assert notes[:50] == [1] * 50
        assert len({*notes[50:100]}) == 1
    assert run(support, "note", 50, 1 << 10, 150)[:50] == [1] * 50
    print("done")
"""


def test_a_worker_without_scratch_leaves_the_work_to_others() -> None:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHORT)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert (result.stdout, result.returncode) == ("done\n", 0), result.stderr


def test_callers_on_several_threads_all_finish(threads: Support) -> None:
    threads.configure(2)
    results: list[list[int]] = []

    def caller() -> None:
        for _ in range(200):
            results.append(run(threads, "count", 64, 0, 64))

    callers = [threading.Thread(target=caller) for _ in range(6)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert results == [[1] * 64] * 1200


def test_a_kernel_may_call_the_pool(threads: Support) -> None:
    threads.configure(2)
    assert run(threads, "nested", 40, 0, 16) == [40] * 16


def test_the_thread_count_may_change_between_calls(threads: Support) -> None:
    for turn in range(60):
        threads.configure(turn % 5 + 1)
        assert run(threads, "count", 20, 0, 20) == [1] * 20


def worker_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir())) - threading.active_count()


def test_workers_that_are_no_longer_wanted_leave(threads: Support) -> None:
    threads.configure(1)
    idle, before = worker_threads(), -1
    while idle != before:  # workers of earlier tests may still be on their way out
        time.sleep(0.2)
        idle, before = worker_threads(), idle
    threads.configure(4)
    run(threads, "count", 20, 0, 20)
    assert worker_threads() == idle + 3
    threads.configure(1)
    deadline = time.monotonic() + 5
    while worker_threads() > idle and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker_threads() == idle


def test_calls_after_a_pause_find_workers_asleep_and_wake_them(threads: Support) -> None:
    threads.configure(2)
    for _ in range(5):
        time.sleep(0.01)
        assert run(threads, "note", 30, 100, 90)[:30] == [1] * 30


def deaf_threads() -> set[str]:
    """Which threads of this process block SIGUSR1, bit 9 of the mask."""
    masks = {
        task.name: line.split()[1]
        for task in Path("/proc/self/task").iterdir()
        for line in (task / "status").read_text().splitlines()
        if line.startswith("SigBlk:")
    }
    return {thread for thread, mask in masks.items() if int(mask, 16) >> 9 & 1}


def test_workers_take_no_signals(threads: Support) -> None:
    threads.configure(1)
    run(threads, "count", 20, 0, 20)
    until = time.monotonic() + 3
    while deaf_threads() and time.monotonic() < until:  # workers of a test before this one are on their way out
        time.sleep(0.01)
    others = deaf_threads()  # of the pool that all other tests share
    threads.configure(3)
    run(threads, "count", 20, 0, 20)
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(threading.get_native_id()))
    try:
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.001)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen
    assert len(deaf_threads() - others) == 2, "our workers block it"


FORK = """
    import ctypes, os, sys
    from tessera.runtime.loader import link
    from tessera.runtime.native.support import load_support
    from tests.runtime.programs import compile_text
    from tests.runtime.test_pool import KERNELS, run

    support = load_support(compile_text)
    support.configure(3)
    for _ in range(10):
        assert run(support, "count", 50, 0, 50) == [1] * 50
        child = os.fork()
        if not child:
            for _ in range(20):
                assert run(support, "note", 50, 100, 150)[:50] == [1] * 50
            block = support.alloc(1 << 20)
            support.free(block)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert run(support, "count", 50, 0, 50) == [1] * 50
    print("done")
"""


def test_parent_and_child_both_work_after_a_fork() -> None:
    assert print_rows(FORK) == "done\n"
