"""The page of `tessera inspect` in a real browser: it fits its window, and its clicks and bars do what they should."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from tessera.cli.arguments import Given
from tessera.cli.show import show_levels

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1280,900"),
)
WIDTH, HEIGHT = 1280, 900
ACTIONS = r"""
<script>
const seen = { errors: [] };
addEventListener('error', (event) => seen.errors.push(String(event.message)));
const box = (element) => element.getBoundingClientRect();
const widths = () => [...document.querySelectorAll('main > section')].map((one) => Math.round(box(one).width));
const pointer = (target, type, x) =>
  target.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: 300, bubbles: true }));
seen.overflow = document.documentElement.scrollWidth - innerWidth;
seen.panes = [...document.querySelectorAll('.lines')].map((pane) => pane.scrollWidth - pane.clientWidth);
seen.columns = [...document.querySelectorAll('main h2')].map((title) => title.textContent);
seen.highlighted = document.querySelectorAll('main .l span.o').length;
seen.hiddenBefore = document.getElementById('code').hidden;
seen.code = {};
for (const language of ['llvm', 'ptx']) {
  document.querySelector(`button[data-show="${language}"]`).click();
  const code = document.getElementById('code');
  seen.code[language] = {
    hidden: code.hidden, height: Math.round(box(code).height), title: code.querySelector('h2').textContent,
    text: code.querySelector('.lines').textContent.slice(0, 4000), spans: code.querySelectorAll('span.o').length,
  };
}
document.getElementById('close').click();
seen.hiddenAfter = document.getElementById('code').hidden;
seen.before = widths();
const handle = document.querySelectorAll('.handle')[1];
const x = box(handle).left;
pointer(handle, 'pointerdown', x);
pointer(document.body, 'pointermove', x + 90);
pointer(document.body, 'pointerup', x + 90);
seen.after = widths();
pointer(document.body, 'pointermove', x + 200);
seen.released = widths();
document.querySelector('[data-level="source"] .l[data-k]').click();
seen.lit = [...document.querySelectorAll('main section')].map((one) => one.querySelectorAll('.on').length);
document.querySelector('header input[value="graph"]').click();
seen.shown = [...document.querySelectorAll('main > section')].filter((one) => box(one).width > 0).length;
document.body.dataset.seen = JSON.stringify(seen);
</script>
"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "inspect.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert show_levels("examples.softmax:by_hand", Given(), str(file), architecture="sm_90a") == 0
    return file


def browse(file: Path, *arguments: str) -> str:
    assert BROWSER is not None
    profile = file.parent / f"profile{len(list(file.parent.glob('profile*')))}"
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", *arguments, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module")
def seen(page: Path) -> dict[str, Any]:
    """What a script saw that clicked through the page."""
    acted = page.with_name("acted.html")
    acted.write_text(page.read_text().replace("</body>", f"{ACTIONS}</body>"))
    found = re.search(r'data-seen="([^"]*)"', browse(acted, "--dump-dom"))
    assert found is not None
    return json.loads(
        found.group(1).replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )


def test_five_columns_fit_a_window_of_1280_pixels(seen: dict[str, Any]) -> None:
    assert seen["errors"] == []
    assert seen["overflow"] <= 0
    assert max(seen["panes"]) <= 0
    assert seen["columns"] == ["source", "graph", "schedule", "tile", "target"]
    assert min(seen["before"]) >= 150
    assert seen["highlighted"] > 50


def test_llvm_and_ptx_appear_on_demand(seen: dict[str, Any]) -> None:
    assert seen["hiddenBefore"]
    assert seen["hiddenAfter"]
    llvm, ptx = seen["code"]["llvm"], seen["code"]["ptx"]
    assert (llvm["hidden"], ptx["hidden"]) == (False, False)
    assert llvm["title"].startswith("LLVM of by_hand")
    assert "define" in llvm["text"]
    assert ptx["title"].startswith("PTX of by_hand")
    assert ".target sm_90a" in ptx["text"]
    assert min(llvm["height"], ptx["height"]) > 200
    assert min(llvm["spans"], ptx["spans"]) > 10


def test_bars_resize_the_columns_beside_them_alone(seen: dict[str, Any]) -> None:
    before, after = seen["before"], seen["after"]
    assert after[1] - before[1] == pytest.approx(90, abs=2)
    assert before[2] - after[2] == pytest.approx(90, abs=2)
    assert [after[at] for at in (0, 3, 4)] == pytest.approx([before[at] for at in (0, 3, 4)], abs=2)
    assert seen["released"] == after


def test_a_line_lights_up_at_every_level_and_a_level_can_be_hidden(seen: dict[str, Any]) -> None:
    assert min(seen["lit"]) >= 1
    assert seen["shown"] == 4


@pytest.mark.slow
def test_the_picture_is_of_the_window_and_shows_text_in_every_column(page: Path) -> None:
    picture = page.with_name("shot.png")
    browse(page, f"--screenshot={picture}")
    rows = read_png(picture.read_bytes())
    assert (len(rows[0]) // 3, len(rows)) == (WIDTH, HEIGHT)
    background = rows[-1][:3]
    for column in range(5):
        start = column * WIDTH // 5
        part = [bytes(row[3 * at : 3 * at + 3]) for row in rows[130:] for at in range(start, start + WIDTH // 5)]
        inked = sum(pixel != background for pixel in part)
        assert 0.002 < inked / len(part) < 0.6, column
        assert len(set(part)) > 20, column


def read_png(data: bytes) -> list[bytes]:
    """The rows of a picture of 8 bits a channel, as RGB."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, _, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert (depth, kind in (2, 6)) == (8, True)
    at, packed = 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    channels = 3 if kind == 2 else 4
    size, plain = width * channels, zlib.decompress(packed)
    rows: list[bytes] = []
    last = bytes(size)
    for start in range(0, len(plain), size + 1):
        last = unfilter(plain[start], bytearray(plain[start + 1 : start + 1 + size]), last, channels)
        rows.append(last if channels == 3 else bytes(byte for place, byte in enumerate(last) if place % 4 != 3))
    return rows


def unfilter(kind: int, row: bytearray, above: bytes, channels: int) -> bytes:
    """One row as it was before its filter (PNG specification, section 9.2)."""
    for at in range(len(row)):
        left = row[at - channels] if at >= channels else 0
        up, corner = above[at], above[at - channels] if at >= channels else 0
        guess = left + up - corner
        nearest = min((left, up, corner), key=lambda one: abs(guess - one))
        row[at] = (row[at] + (0, left, up, (left + up) // 2, nearest)[kind]) & 0xFF
    return bytes(row)
