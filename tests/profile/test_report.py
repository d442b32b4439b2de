"""The page of a profile: nothing from elsewhere, all that was asked for, and what a browser makes of it."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.profile import Profile, write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SERIES: dict[str, Any] = {
    "loss": {"train": [3.0, 2.0, float("nan"), 1.5], "held out": [(0, 3.5), (3, 2.0)]},
    "<tokens/s>": [100.0, 120.0],
}


@ts.jit
def layer(x: Any, w: Any) -> Any:
    hidden = ops.softmax(x @ w)
    return ops.softmax(hidden @ w.T) @ w


@pytest.fixture(scope="module")
def found() -> Profile:
    rng = np.random.default_rng(1)
    return layer.profile(*(rng.standard_normal(shape).astype(np.float32) for shape in ((64, 48), (48, 48))))


@pytest.fixture(scope="module")
def page(found: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    return write_report(file, "A layer & <more>", found, series=SERIES, lowering=found.lowering())


class Outline(HTMLParser):
    """The elements of a page: that each is closed, and whatever they load or link to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.headings: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data.strip())


def test_the_page_is_whole_and_loads_nothing(page: Path, found: Profile) -> None:
    text = page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.loads == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/)", text)
    wanted = ("A layer & <more>", "loss", "<tokens/s>", "Kernel timeline", "Memory timeline", "Roofline", "Flame graph")
    assert set(wanted) <= set(outline.headings), outline.headings
    assert {"Source", "Graph IR", "Schedule IR", "Tile IR", "Target IR", "LLVM or PTX"} <= set(outline.headings)
    assert "light-dark(" in text
    assert "prefers-color-scheme" in text or "color-scheme: light dark" in text


def test_the_page_has_every_launch_and_every_tensor(page: Path, found: Profile) -> None:
    text = page.read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [(one["s"], one["e"]) for one in data["events"]] == [(one.start, one.end) for one in found.events]
    assert all("test_report.py" in one["line"] for one in data["events"])
    memory = data["memory"]
    assert len(memory["tensors"]) == len(found.memory.tensors)
    assert memory["peak"] == found.memory.workspace
    assert max(one["o"] + one["b"] for one in memory["tensors"]) <= memory["top"]


def test_a_lowering_is_of_one_kernel_at_every_level(found: Profile) -> None:
    lowering = found.lowering()
    assert lowering.kernel in found.roofline[0].kernel
    for level, lines in lowering.levels.items():
        text = "\n".join(line for line, _ in lines)
        assert lowering.kernel in text, level
    others = {event.name for event in found.kernels} - {lowering.kernel}
    assert not any(f"@{other}(" in line for other in others for lines in lowering.levels.values() for line, _ in lines)
    keys = {key for level in ("graph", "tile", "target") for _, own in lowering.levels[level] for key in own}
    assert {line.split()[0] for line, _ in lowering.source} == {key.rpartition(":")[2] for key in keys} != set()


def test_a_kernel_of_a_group_of_several_has_the_graph_of_the_group() -> None:
    profile = ts.jit(lambda x, y: ops.concat([x, y], axis=1)).profile(ts.ones((4, 3)), ts.ones((4, 5)))
    assert len(profile.kernels) > len(profile.roofline) == 1
    last = profile.kernels[-1].name
    lowering = profile.lowering(last)
    assert lowering.kernel == last
    assert any("tgraph.concat" in line for line, _ in lowering.levels["graph"])
    assert [line for line, _ in lowering.levels["tile"] if f"@{last}(" in line]


def test_a_page_without_curves_or_lowering_is_a_page(found: Profile, tmp_path: Path) -> None:
    text = write_report(tmp_path / "plain.html", "plain", found).read_text(encoding="utf-8")
    assert "Kernel timeline" in text
    assert "Lowering" not in text


def browse(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Let a browser look at a page; skips where there is none."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)}")
    plain = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}")
    command = [browser, *plain, "--enable-logging=stderr", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.slow
def test_a_browser_draws_every_launch_and_tensor(page: Path, found: Profile, tmp_path: Path) -> None:
    done = browse(page, tmp_path, "--dump-dom", "--virtual-time-budget=2000")
    assert "Uncaught" not in done.stderr
    kernels = done.stdout.split('id="kernels"')[1].split("</svg>")[0]
    memory = done.stdout.split('id="memory"')[1].split("</svg>")[0]
    assert kernels.count('class="bar"') == len(found.events)
    assert memory.count('class="bar"') == len(found.memory.tensors)
    assert memory.count('class="peak"') == 1
    assert "NaN" not in kernels + memory


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screenshot_shows_both_timelines_on_a_light_and_on_a_dark_page(
    found: Profile, tmp_path: Path, scheme: str
) -> None:
    page, image = write_report(tmp_path / "plain.html", "plain", found), tmp_path / f"{scheme}.png"
    number = {"dark": 0, "light": 1}[scheme]
    settings = f"--blink-settings=preferredColorScheme={number}"
    browse(page, tmp_path / "browser", "--window-size=800,640", f"--screenshot={image}", settings)
    pixels = read_png(image.read_bytes())
    back = pixels[4, 4].astype(int).sum() / 3
    assert (back > 200) == (scheme == "light")
    colors, counts = np.unique(pixels.reshape(-1, 3) // 8, axis=0, return_counts=True)
    assert len(colors) > 100
    # Bars of kernels and tensors: saturated colors on a part of the page, which is mostly background.
    spread = colors.max(axis=1).astype(int) - colors.min(axis=1)
    drawn = counts[spread > 8].sum() / counts.sum()
    assert 0.03 < drawn < 0.6, drawn


def read_png(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels of an image of 8 bits a channel, as [height, width, 3]."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, channels = 8, b"", 0, 0, 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[color]
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    raw, length = zlib.decompress(packed), width * channels
    rows = [bytearray(length + channels)]  # each with a pixel of zeros before it
    for number in range(height):
        start = number * (length + 1)
        line = bytearray(channels) + raw[start + 1 : start + 1 + length]
        unfilter(raw[start], line, rows[-1], channels)
        rows.append(line)
    found = np.array(rows[1:], np.uint8)[:, channels:]
    return found.reshape(height, width, channels)[:, :, :3]


def unfilter(kind: int, line: bytearray, above: bytearray, channels: int) -> None:
    """Make a row of an image of what its filter left."""
    for at in range(channels, len(line) if kind else 0):
        left, up, corner = line[at - channels], above[at], above[at - channels]
        if kind == 4:
            near = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = (left, up, corner)[near.index(min(near))]
        else:
            guess = (0, left, up, (left + up) // 2)[kind]
        line[at] = (line[at] + guess) & 255


@pytest.mark.parametrize("kind", range(5))
def test_images_are_read_as_they_were_written(kind: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    raw = b""
    above = np.zeros((6, 3), np.int64)
    for row in pixels:
        line = np.concatenate([np.zeros((1, 3), np.int64), row])
        left, up, corner = line[:-1], above[1:], above[:-1]
        near = np.stack([abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)])
        paeth = np.choose(near.argmin(axis=0), [left, up, corner])
        guess = [0 * left, left, up, (left + up) // 2, paeth][kind]
        raw += bytes([kind]) + ((line[1:] - guess) % 256).astype(np.uint8).tobytes()
        above = line
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in chunks:
        data += struct.pack(">I4s", len(body), name) + body + struct.pack(">I", zlib.crc32(name + body))
    np.testing.assert_array_equal(read_png(data), pixels)
