"""The code generator's workers: bytes come back, failures become errors, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics.codes import CodegenError
from tessera.ir.target import machine_code, worker_pool
from tessera.ir.target.machine_code import CodeTarget, compile_text, compile_texts
from tessera.runtime.cache import default_store

X86 = CodeTarget("x86_64-unknown-linux-gnu", "x86-64-v3")

CRASHES = """
declare <8 x float> @llvm.x86.avx512.mask.compress.v8f32(<8 x float>, <8 x float>, <8 x i1>)
declare void @llvm.x86.tilezero(i8)
define void @f() {
  call void @llvm.x86.tilezero(i8 0)
  ret void
}
"""


def add(number: int) -> str:
    return f"define i64 @f(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


@pytest.fixture(autouse=True)
def reproducers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_REPRODUCERS", str(tmp_path))
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    machine_code.forget()
    return tmp_path


def test_text_becomes_an_elf_object_and_the_second_time_comes_from_memory() -> None:
    first = compile_text(add(1), X86)
    assert first[:4] == b"\x7fELF"
    assert compile_text(add(1), X86) is first


def test_objects_outlive_the_process_on_disk() -> None:
    made = compile_text(add(30), X86)
    assert default_store().get(X86.key(add(30))) == made
    machine_code.forget()
    worker_pool.close_pool()
    assert compile_text(add(30), X86) == made
    assert worker_pool._pool is None  # pyright: ignore[reportPrivateUsage]


def test_assembly_can_be_asked_for() -> None:
    assert b"leaq\t7(%rdi)" in compile_text(add(7), CodeTarget(X86.triple, emit="assembly"))


@pytest.mark.parametrize("passes", ["none", "light", "O2"])
def test_every_kind_of_passes_runs(passes: str) -> None:
    assert compile_text(add(2), CodeTarget(X86.triple, passes=passes))[:4] == b"\x7fELF"


def test_many_texts_compile_once_each_in_order() -> None:
    objects = compile_texts([add(1), add(2), add(1), add(3)], X86)
    assert objects[0] == objects[2]
    assert len(set(objects)) == 3


def test_the_next_program_of_the_chain_gets_the_bytes_as_soon_as_they_are_there() -> None:
    given, done = list[bytes](), threading.Event()

    def take(made: bytes) -> None:
        given.append(made)
        done.set()

    machine_code.begin(add(61), X86, take)
    assert done.wait(30)
    assert given == [compile_text(add(61), X86)]
    machine_code.begin(add(61), X86, take)
    assert given == 2 * given[:1], "what is known is given without a worker"
    machine_code.begin("this is no LLVM text", X86, take)
    with pytest.raises(CodegenError):
        compile_text("this is no LLVM text", X86)
    assert len(given) == 2, "what is refused is said to whoever asks for it"


def test_another_thread_may_take_a_text_as_soon_as_it_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            """Gone at once, as if another thread had asked for its bytes."""

    monkeypatch.setattr(machine_code, "_begun", Taken())
    given, done = list[bytes](), threading.Event()
    machine_code.begin(add(67), X86, lambda made: (given.append(made), done.set())[0])
    assert done.wait(30)
    assert given == [compile_text(add(67), X86)]


def test_a_text_that_was_begun_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    submit = worker_pool.WorkerPool.submit

    def counting(self: worker_pool.WorkerPool, header: dict[str, object], text: str, timeout: float) -> object:
        given.append(text)
        return submit(self, header, text, timeout)

    monkeypatch.setattr(worker_pool.WorkerPool, "submit", counting)
    machine_code.begin(add(60), X86)
    machine_code.begin(add(60), X86)
    made = compile_text(add(60), X86)
    machine_code.begin(add(60), X86)
    assert compile_text(add(60), X86) is made
    assert given == [add(60)]


def test_what_closed_workers_had_begun_is_compiled_by_new_ones() -> None:
    worker_pool.close_pool()
    texts = [add(number) for number in range(70, 82)]
    for text in texts:
        machine_code.begin(text, X86)
    worker_pool.close_pool()  # most of them are still waiting for a worker
    assert len(set(compile_texts(texts, X86))) == len(texts)


def test_a_store_is_asked_before_llvm_and_filled_after() -> None:
    class Store:
        kept: dict[str, bytes] = {}

        def get(self, key: str) -> bytes | None:
            return self.kept.get(key)

        def put(self, key: str, value: bytes) -> None:
            self.kept[key] = value

    store = Store()
    machine_code.use_store(lambda: store)
    try:
        made = compile_text(add(40), X86)
        machine_code.forget()
        assert store.kept[X86.key(add(40))] == made
        assert compile_text(add(40), X86) is made
    finally:
        machine_code.use_store(default_store)


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("define i64 @f( {", X86, "expected type"),
        ("define i64 @f() {\n  ret i64 %x\n}", X86, "undefined value '%x'"),
        ("declare float @llvm.nonsense.f32(float)\n", X86, "`llvm.nonsense.f32` is not an intrinsic"),
        (add(1), CodeTarget(X86.triple, "pentium-nonsense"), "not a recognized processor"),
        (add(1), CodeTarget(X86.triple, "x86-64-v3", "+nonsense"), "not a recognized feature"),
        (add(1), CodeTarget("nonsense"), "nonsense"),
    ],
)
def test_what_llvm_refuses_is_an_error_with_its_words(text: str, target: CodeTarget, words: str) -> None:
    with pytest.raises(CodegenError, match="T0603") as caught:
        compile_text(text, target)
    assert words in str(caught.value)


def test_a_crash_of_the_generator_is_an_error_with_the_text_saved_and_the_next_compile_works(reproducers: Path) -> None:
    with pytest.raises(CodegenError, match="the code generator") as caught:
        compile_text(CRASHES, X86)
    (saved,) = reproducers.glob("codegen-*.ll")
    assert str(saved) in caught.value.notes[0]
    assert CRASHES in saved.read_text()
    assert compile_text(add(5), X86)[:4] == b"\x7fELF"


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null", ""])
def test_a_folder_of_reproducers_that_cannot_be_written_hides_no_error(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_REPRODUCERS", folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not folder:  # another user has made the folder that we would make
        monkeypatch.delenv("TESSERA_REPRODUCERS")
        (tmp_path / f"tessera-{os.getuid()}" / "reproducers").mkdir(parents=True)
        (tmp_path / f"tessera-{os.getuid()}" / "reproducers").chmod(0o777)
    with pytest.raises(CodegenError, match="LLVM refused") as caught:
        compile_text("define i64 @f( {", X86)
    (saved,) = tmp_path.glob("tessera-reproducers-*/codegen-*.ll")
    assert caught.value.notes == (f"the LLVM text is in {saved}",)
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    monkeypatch.setenv("TESSERA_REPRODUCERS", "/proc/nowhere")
    with pytest.raises(CodegenError, match="LLVM refused") as caught:
        compile_text("define i64 @f( {", X86)
    assert "could not be written; set TESSERA_REPRODUCERS" in caught.value.notes[0]


def test_a_worker_that_knows_many_processors_mistakes_none_for_another() -> None:
    """More of them than it keeps, alternating: each gets the code that it got when it was new."""
    text = "define <8 x float> @f(<8 x float> %x) {\n  %y = fadd <8 x float> %x, %x\n  ret <8 x float> %y\n}\n"
    names = ("", "+avx", "+avx2", "+fma", "+bmi", "+bmi2", "+sse4.2", "+popcnt", "+avx,+fma", "+avx,+bmi")
    targets = [CodeTarget(triple=X86.triple, cpu="x86-64", features=features) for features in names]
    machine_code.use_store(lambda: None)
    try:
        first = [compile_text(text, target) for target in targets]
        for order in (targets, targets[::-1]):
            machine_code.forget()
            assert {target: compile_text(text, target) for target in order} == dict(zip(targets, first, strict=True))
    finally:
        machine_code.use_store(default_store)
    assert len(set(first)) > 1


def test_a_generator_that_takes_too_long_is_ended() -> None:
    # Half a second of work, so that no answer is there when the first look is taken, however late that is.
    long = "\n".join(add(number).replace("@f", f"@f{number}") for number in range(1000))
    with pytest.raises(CodegenError, match="took too long"):
        compile_text(long, X86, timeout=0.0)
    assert compile_text(add(6), X86)[:4] == b"\x7fELF"


def test_closing_the_pool_leaves_no_process() -> None:
    compile_text(add(8), X86)
    ids = worker_pool.pool().process_ids()
    worker_pool.close_pool()
    for process in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_forked_child_has_workers_of_its_own() -> None:
    compile_text(add(10), X86)
    machine_code.forget()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if compile_text(add(11), X86)[:4] == b"\x7fELF" else 1
            worker_pool.close_pool()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compile_text(add(12), X86)[:4] == b"\x7fELF"


def test_no_process_outlives_the_interpreter_and_xdsl_is_not_needed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # no `if __name__` guard: the workers must not run it again
    script.write_text(
        textwrap.dedent(f"""
        import sys
        from tessera.ir.target import machine_code, worker_pool
        machine_code.compile_text({add(9)!r}, machine_code.CodeTarget({X86.triple!r}))
        assert "xdsl" not in sys.modules and "llvmlite" not in sys.modules and "numpy" not in sys.modules
        print(*worker_pool.pool().process_ids())
        """)
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    assert len(done.stdout.split()) == worker_pool.default_size() + 1  # the process that forked them
    for process in done.stdout.split():
        assert not Path(f"/proc/{process}").exists()


def test_a_process_without_standard_files_compiles() -> None:
    program = """
import os
for number in (0, 1, 2):
    os.close(number)
from tessera.ir.target.machine_code import CodeTarget, compile_text
compile_text("define i32 @f() { ret i32 5 }", CodeTarget("x86_64-unknown-linux-gnu"))
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 7


def test_workers_that_are_killed_while_idle_fail_nobody() -> None:
    """Not even where they are still going: the one that is asked dies of it, and a new one answers."""
    worker_pool.close_pool()
    for number in range(6):
        for process_id in worker_pool.pool().process_ids():
            os.kill(process_id, signal.SIGKILL)
        assert compile_text(add(100 + number), X86)[:4] == b"\x7fELF"
    worker_pool.close_pool()


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_worker_that_is_killed_at_work_is_replaced_at_once_and_the_second_death_says_by_which_signal(
    deaths: int,
) -> None:
    pool = worker_pool.WorkerPool(1)
    seconds_of_work = "\n".join(add(number).replace("@f", f"@f{number}") for number in range(4000))
    future, killed, started = None, set[int](), time.monotonic()

    def find_next() -> int | None:
        return next((one for one in pool.process_ids()[:1] if one not in killed), None)

    for _ in range(deaths):
        process_id: int = wait_for(find_next)
        future = future or pool.submit(machine_code._header(X86), seconds_of_work, 30.0)  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.1)
        killed.add(process_id)
        os.kill(process_id, signal.SIGKILL)
    assert future is not None
    if deaths == 1:
        assert future.result()[0][:4] == b"\x7fELF"
    else:
        with pytest.raises(worker_pool.WorkerDiedError, match="was ended by signal 9"):
            future.result()
    assert time.monotonic() - started < 15
    pool.close()


def test_a_failure_does_not_wait_for_texts_that_are_well() -> None:
    worker_pool.close_pool()
    pool = worker_pool.pool()
    long = "\n".join(add(number).replace("@f", f"@f{number}") for number in range(20_000))
    started = time.monotonic()
    with pytest.raises(CodegenError, match="expected type"):
        compile_texts([long, "define i64 @f( {"], X86)
    if pool.size > 1:
        assert time.monotonic() - started < 3
    worker_pool.close_pool()  # ends the one that is at work
    assert time.monotonic() - started < 5


def test_a_text_that_a_stopped_worker_does_not_read_has_a_deadline() -> None:
    pool = worker_pool.WorkerPool(1)
    ids = pool.process_ids()
    os.kill(ids[0], signal.SIGSTOP)
    large = "; " + "x" * (1 << 21)  # more than a pipe holds
    with pytest.raises(worker_pool.WorkerDiedError, match="took too long"):
        pool.submit(machine_code._header(X86), large, 0.2).result(10)  # pyright: ignore[reportPrivateUsage]
    pool.close()
    assert [one for one in ids if Path(f"/proc/{one}").exists()] == []


@pytest.mark.parametrize("stopped", ["worker", "supervisor", "all"])
@pytest.mark.parametrize("is_busy", [False, True])
def test_closing_a_pool_with_stopped_processes_takes_less_than_two_seconds(stopped: str, is_busy: bool) -> None:
    pool = worker_pool.WorkerPool(3)
    ids = pool.process_ids()
    for one in {"worker": ids[:1], "supervisor": ids[-1:], "all": ids}[stopped]:
        os.kill(one, signal.SIGSTOP)
    futures = [pool.submit(machine_code._header(X86), add(130 + n), 60.0) for n in range(5 * is_busy)]  # pyright: ignore[reportPrivateUsage]
    time.sleep(0.1)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 2
    assert all(future.done() for future in futures)
    assert wait_for(lambda: not [one for one in ids if is_running(one)])


def is_running(process_id: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody has waited for is none."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 10
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


INTERRUPTED = """
import os, signal, sys, threading, time
from tessera.ir.target import worker_pool
from tessera.ir.target.machine_code import CodeTarget, compile_text

ids = worker_pool.pool().process_ids()
for one in ids[:-1]:
    os.kill(one, signal.SIGSTOP)
print(*ids, flush=True)
compile_text("define i32 @f() { ret i32 5 }", CodeTarget("x86_64-unknown-linux-gnu"))
"""


def test_an_interrupt_with_stopped_workers_ends_the_process_and_all_workers(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TESSERA_CACHE_DIR": str(tmp_path / "c")}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    ids = list(map(int, process.stdout.readline().split()))
    time.sleep(0.5)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < 2
    assert b"KeyboardInterrupt" in errors
    assert wait_for(lambda: not [one for one in ids if is_running(one)])


def test_a_request_that_fails_before_it_is_sent_leaves_no_process() -> None:
    worker_pool.close_pool()
    pool = worker_pool.WorkerPool(1)
    (worker,) = pool._all  # pyright: ignore[reportPrivateUsage]
    ids = pool.process_ids()
    # Not JSON: it fails while a worker is taken.
    with pytest.raises(TypeError):
        pool.submit({"opt": object()}, "", 5.0).result()
    body, _ = pool.submit(machine_code._header(X86), add(13), 30.0).result()  # pyright: ignore[reportPrivateUsage]
    assert body[:4] == b"\x7fELF"
    assert worker.group.own_id not in pool.process_ids()
    ids += pool.process_ids()
    pool.close()
    assert [one for one in ids if Path(f"/proc/{one}").exists()] == []
