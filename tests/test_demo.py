"""The demo runs at toy sizes, and its report has the numbers of the run and is drawn by a browser."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.demo import Found, main
from tests.profile.test_report import Outline, browse, read_png
from tests.test_examples import TOY

LOSS = "loss (nats per character)"
CHARTS = {LOSS, "kernels", "memory", "roofline"}
# A copy of the page writes into itself where its charts are, and how wide it is, for the test to read.
MEASURE = """
<script>addEventListener("load", () => {
  const boxes = {};
  for (const one of document.querySelectorAll("svg")) {
    const box = one.getBoundingClientRect();
    boxes[one.id || one.getAttribute("aria-label") || "other"] = [box.x, box.y, box.width, box.height];
  }
  document.body.dataset.seen = JSON.stringify({boxes, width: document.documentElement.scrollWidth});
})</script>
"""
WIDTH, HEIGHT, SCALE = 1280, 2000, 0.5


def test_the_demo_ends_with_a_report_that_a_browser_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes: dict[str, Any] = {**TOY["demo"], "folder": str(tmp_path)}
    found = main(**sizes)
    printed = capsys.readouterr().out
    assert str(found.page) in printed.replace("\n", "")
    assert "every bit the same" in printed
    check_numbers(found)
    check_picture(found, tmp_path)  # skips where there is no browser: the last thing to do


def check_numbers(found: Found) -> None:
    """The page is whole, loads nothing, and has the curves, launches, tensors and kernels of the run."""
    text = found.page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert (outline.open, outline.loads) == ([], [])
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/)", text)
    wanted = {LOSS, "Kernel timeline", "Memory timeline", "Roofline", "Flame graph", "Source", "Tile IR", "LLVM or PTX"}
    assert wanted <= set(outline.headings)

    curves = found.curves[LOSS]
    assert len(curves["training"]) == TOY["demo"]["steps"]
    chart = text.split(f'aria-label="{LOSS}"')[1].split("</svg>")[0]
    drawn = [len(points.split()) for points in re.findall(r'class="curve"[^>]*points="([^"]*)"', chart)]
    assert drawn == [len(line) for line in curves.values()]
    for label, line in curves.items():
        step, value = line[-1]
        assert f"{label}: {value:.5g} at {step:g}" in chart
        assert f"{label} <b>{value:.4g}</b>" in text

    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [(one["s"], one["e"]) for one in data["events"]] == [(one.start, one.end) for one in found.profile.events]
    assert data["memory"]["peak"] == found.profile.memory.workspace
    assert len(data["memory"]["tensors"]) == len(found.profile.memory.tensors)
    rows = [row for row in found.profile.roofline if row.flops and row.bytes and row.time]
    assert text.count('class="dot"') == len(rows) > 10


def check_picture(found: Found, folder: Path) -> None:
    """A browser draws every launch and tensor, and each chart is in its picture, inside of the window."""
    page, image = folder / "measured.html", folder / "report.png"
    page.write_text(found.page.read_text(encoding="utf-8") + MEASURE, encoding="utf-8")
    window = (f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}")
    light = "--blink-settings=preferredColorScheme=1"
    done = browse(
        page, folder / "browser", "--dump-dom", f"--screenshot={image}", "--virtual-time-budget=2000", light, *window
    )
    assert "Uncaught" not in done.stderr
    for name, count in (("kernels", len(found.profile.events)), ("memory", len(found.profile.memory.tensors))):
        assert done.stdout.split(f'id="{name}"')[1].split("</svg>")[0].count('class="bar"') == count
    seen = json.loads(html.unescape(done.stdout.split('data-seen="')[1].split('"')[0]))
    assert seen["boxes"].keys() >= CHARTS
    assert seen["width"] == WIDTH, "the page is wider than the window"
    pixels = read_png(image.read_bytes())
    assert pixels.shape == (HEIGHT * SCALE, WIDTH * SCALE, 3)
    shares = {name: share_drawn(pixels, *seen["boxes"][name]) for name in CHARTS}
    # Curves are thin lines; how far bars of kernels fill theirs depends on the machine.
    least = {LOSS: 0.002, "kernels": 0.03, "memory": 0.05, "roofline": 0.005}
    assert {name: share for name, share in shares.items() if not least[name] < share < 0.95} == {}, shares


def share_drawn(pixels: Any, x: float, y: float, width: float, height: float) -> float:
    """The share of pixels within a box of the page that have a color and are no grey."""
    rows, columns = (
        slice(int(start * SCALE), int((start + size) * SCALE)) for start, size in ((y, height), (x, width))
    )
    part = pixels[rows, columns].astype(np.int64)
    assert part.size, "a chart lies outside of the picture"
    return float((part.max(axis=-1) - part.min(axis=-1) > 64).mean())
