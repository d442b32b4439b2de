"""`TESSERA_*` variables: what they default to, what they take, and what they say to nonsense."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import SettingsError
from tessera.types.settings import (
    Settings,
    compile_workers,
    cuda_device,
    rank_seconds,
    usable_cpus,
    warn_unknown_variables,
)


def test_nothing_set_gives_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.threads == usable_cpus() >= 1
    assert settings.cache_dir == Path.home() / ".cache" / "tessera"
    assert (settings.timing, settings.dump_dir) == (False, None)
    assert Settings.from_environment({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tessera")


@pytest.mark.parametrize(
    ("here", "bound", "threads"), [("1", 8, 8), ("4", 8, 2), ("4", 2, 2), ("3", 8, 2), ("16", 8, 1)]
)
def test_ranks_of_a_launcher_share_the_cpus(
    here: str, bound: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.types.settings.usable_cpus", lambda: bound)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"):
        assert Settings.from_environment({name: here}).threads == threads
    assert Settings.from_environment({"LOCAL_WORLD_SIZE": here, "TESSERA_NUM_THREADS": "5"}).threads == 5


def test_a_user_without_a_home_has_a_cache_among_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", str)  # gives the path as it is, as where there is no home
    own = f"tessera-{os.getuid()}"
    assert Settings.from_environment({}).cache_dir == Path("/tmp") / own / "cache"
    assert Settings.from_environment({"TMPDIR": "/scratch"}).cache_dir == Path("/scratch") / own / "cache"
    assert Settings.from_environment({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tessera")


def test_everything_set_is_read() -> None:
    settings = Settings.from_environment(
        {
            "TESSERA_NUM_THREADS": "3",
            "TESSERA_CACHE_DIR": "/c",
            "TESSERA_CACHE_BYTES": "512M",
            "TESSERA_MEMORY_BYTES": "1024",
            "TESSERA_SPIN_MICROSECONDS": "0",
            "TESSERA_TIMING": "1",
            "TESSERA_DUMP": "~/d",
        }
    )
    assert settings == Settings(3, "/c", 512 << 20, 1024, 0, True, str(Path.home() / "d"))


@pytest.mark.parametrize(("text", "bytes_"), [("7", 7), ("2k", 2048), ("1GiB", 1 << 30), ("3 MB", None), ("-1", None)])
def test_bytes(text: str, bytes_: int | None) -> None:
    if bytes_ is None:
        with pytest.raises(SettingsError, match="must be bytes such as"):
            Settings.from_environment({"TESSERA_CACHE_BYTES": text})
    else:
        assert Settings.from_environment({"TESSERA_CACHE_BYTES": text}).cache_bytes == bytes_


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("TESSERA_NUM_THREADS", value) for value in ("0", "-2", "many", "1.5", "4097", "9" * 20)),
        ("TESSERA_SPIN_MICROSECONDS", "9" * 20),
        ("TESSERA_TIMING", "maybe"),
    ],
)
def test_nonsense_is_named(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` is `{text}`"):
        Settings.from_environment({name: text})


def test_counts_of_workers_and_the_number_of_a_gpu_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESSERA_COMPILE_WORKERS", raising=False)
    monkeypatch.delenv("TESSERA_CUDA_DEVICE", raising=False)
    assert (compile_workers(3), cuda_device()) == (3, 0)
    monkeypatch.setenv("TESSERA_COMPILE_WORKERS", "2")
    monkeypatch.setenv("TESSERA_CUDA_DEVICE", "1")
    assert (compile_workers(3), cuda_device()) == (2, 1)
    monkeypatch.setenv("TESSERA_COMPILE_WORKERS", "0")
    monkeypatch.setenv("TESSERA_CUDA_DEVICE", "x")
    with pytest.raises(SettingsError, match="`TESSERA_COMPILE_WORKERS` is `0`; it must be an integer"):
        compile_workers(3)
    with pytest.raises(SettingsError, match="`TESSERA_CUDA_DEVICE` is `x`"):
        cuda_device()


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_ranks_wait_for_some_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_RANK_SECONDS", "2.5")
    assert rank_seconds() == 2.5
    monkeypatch.setenv("TESSERA_RANK_SECONDS", text)
    with pytest.raises(SettingsError, match=f"`TESSERA_RANK_SECONDS` is `{text}`; it must be seconds"):
        rank_seconds()


def test_an_unknown_variable_is_named_in_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", "0")
    monkeypatch.setattr("tessera.types.settings._warned", set[str]())
    with pytest.warns(UserWarning, match="`TESSERA_CACHE` is set, and no variable .* did you mean `TESSERA_CACHE_DIR`"):
        warn_unknown_variables()
    warn_unknown_variables()  # warnings are errors here


def triple(x: Any) -> Any:
    return x * 3


def test_an_unknown_variable_is_reported_at_the_line_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", "0")
    monkeypatch.setattr("tessera.types.settings._warned", set[str]())
    with pytest.warns(UserWarning, match="`TESSERA_CACHE` is set") as caught:
        ts.jit(triple)(np.ones(3, np.float32))
    assert [one.filename for one in caught] == [__file__]
