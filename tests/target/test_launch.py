"""Launches: buffers and sizes against what the kernel takes, with both signatures in the message."""

from __future__ import annotations

import pytest

from tests.target.texts import BUFFER, check, check_refused, kernel

NARROW = "!ttile.buffer<[M, N], bf16>"


def launch(given: tuple[str, ...], types: tuple[str, ...] | None = None, arity: int = 2, sizes: str = "[4, 5]") -> str:
    """A host that launches `@k`, which takes two buffers of f32 and two sizes."""
    declared = ", ".join(f'"{type}"' for type in (given if types is None else types))
    arguments = ", ".join(f"%b{at}: {type}" for at, type in enumerate(given))
    names = ", ".join(f"%b{at}" for at in range(len(given)))
    attributes = f"{{kernel = @k, types = [{declared}], arity = {arity}, sizes = {sizes}}}"
    return f"""
ttile.kernel @outer({arguments}) attributes {{symbols = ["M", "N"], grid = [1], writes = []}} {{
  ttarget.launch {names} {attributes} : ({", ".join(given)}) -> ()
  ttile.return
}}"""


SIGNATURE = f"`@k` takes ({BUFFER}, {BUFFER}) and 2 sizes"


def test_a_launch_that_fits() -> None:
    check(launch((BUFFER, BUFFER)))
    check(kernel() + launch((BUFFER, BUFFER)))


@pytest.mark.parametrize("module", ["", kernel()], ids=["alone", "beside the kernel"])
def test_both_signatures_are_shown(module: str) -> None:
    fits = (BUFFER, BUFFER)
    for given, sizes in (
        ((BUFFER,), "[4, 5]"),
        ((BUFFER, BUFFER, BUFFER), "[4, 5]"),
        ((BUFFER, NARROW), "[4, 5]"),
        (("!ttile.buffer<[M], f32>", BUFFER), "[4, 5]"),
        (fits, "[4]"),
        (fits, "[4, 5, 6]"),
    ):
        count = sizes.count(",") + 1
        text = module + launch(given, fits, 2, sizes)
        assert check_refused(text) == f"{SIGNATURE}, got ({', '.join(given)}) and {count} sizes"


def test_the_kernel_itself_has_the_last_word() -> None:
    """A launch that agrees with what it says of the kernel, but not with the kernel."""
    text = kernel() + launch((BUFFER, NARROW), (BUFFER, NARROW))
    assert check_refused(text) == f"{SIGNATURE}, got ({BUFFER}, {NARROW}) and 2 sizes"
    text = kernel() + launch((BUFFER, BUFFER), arity=1, sizes="[4]")
    assert check_refused(text) == f"{SIGNATURE}, got ({BUFFER}, {BUFFER}) and 1 sizes"
