"""Folded stacks of a profile, which flame graph tools read, and a flame graph of them as an SVG without a script."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tessera.types.rates import format_time

if TYPE_CHECKING:
    from tessera.profile.result import KernelEvent, Profile

_HOST = "host (dispatch and gaps)"
_ROLE = re.compile(r", (derivative|tangent|backward|rematerialized)")
_ROW, _WIDTH, _CHARACTER = 20, 1200, 6.6
"""Pixels of a row, of the whole, and of a character."""


def folded(profile: Profile) -> str:
    """A line for each stack, `frame;frame;frame nanoseconds`: of the device's time, and of what the host took beside.

    Frames are the function, `forward` or `backward`, the source line, and the kernel.
    """
    found: dict[tuple[str, ...], int] = {}
    for event in profile.events:
        stack = (profile.name, *_frames(event))
        found[stack] = found.get(stack, 0) + event.time
    host = profile.duration - profile.kernel_time
    found[profile.name, _HOST] = max(0, host)
    lines = (";".join(map(_clean, stack)) + f" {time}" for stack, time in found.items())
    return "\n".join(lines) + "\n"


def _clean(frame: str) -> str:
    return frame.replace(";", ",").replace("\n", " ")


def _frames(event: KernelEvent) -> Iterator[str]:
    if event.kind != "kernel":
        yield event.kind
    elif event.call is not None:
        role = _ROLE.search(event.line)
        yield "backward" if role is not None else "forward"
        text = next((one.text for one in reversed(event.call.sources) if one.text and one.where == event.line), "")
        location = event.line.partition(",")[0].rpartition("/")[2]
        if location:
            yield f"{_line_of(location)} {text}".strip()
    yield event.name


def _line_of(location: str) -> str:
    """`model.py:12` of `model.py:12:5-12:9`."""
    return ":".join(location.split(":")[:2])


@dataclass
class Frame:
    """A frame of a flame graph: its name, its time with all above it, and the frames that it called."""

    name: str
    time: int = 0
    children: dict[str, Frame] = field(default_factory=dict[str, "Frame"])

    def add(self, stack: Sequence[str], time: int) -> None:
        """Count a stack."""
        self.time += time
        if stack:
            self.children.setdefault(stack[0], Frame(stack[0])).add(stack[1:], time)

    @property
    def depth(self) -> int:
        """Rows that it needs."""
        return 1 + max((child.depth for child in self.children.values()), default=0)


def read_folded(text: str) -> Frame:
    """The frames of folded stacks, below one that holds all.

    >>> read_folded("f;a 3\\nf;b 4\\n").children["f"].time
    7
    """
    root = Frame("all")
    for line in text.splitlines():
        stack, _, time = line.rpartition(" ")
        root.add(stack.split(";"), int(time))
    return root


_STYLE = """
.flame { font: 11px ui-monospace, Menlo, Consolas, monospace; color-scheme: light dark; }
.flame text { fill: #111; pointer-events: none; } .flame .title { fill: currentColor; font-size: 13px; }
.flame rect { stroke: light-dark(#fff, #16181d); stroke-width: 1; } .flame g:hover rect { filter: brightness(1.15); }
"""


def flame_graph(root: Frame, title: str) -> str:
    """The frames as an SVG: wide is long, what is above was called from what is below; a title names each."""
    frames = next(iter(root.children.values())) if len(root.children) == 1 else root
    height = frames.depth * _ROW + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" viewBox="0 0 {_WIDTH} {height}" width="100%">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="2" y="16">{html.escape(title)}</text>',
    ]
    parts += _draw(frames, 0.0, height - _ROW, _WIDTH / max(frames.time, 1), max(frames.time, 1))
    return "\n".join([*parts, "</svg>"])


def _draw(frame: Frame, left: float, top: float, scale: float, whole: int) -> Iterator[str]:
    width = frame.time * scale
    if width < 0.3:
        return
    about = f"{frame.name}: {format_time(frame.time)}, {frame.time / whole:.1%}"
    letters = int((width - 6) / _CHARACTER)
    shown = frame.name if len(frame.name) <= letters else f"{frame.name[: letters - 2]}.." if letters > 3 else ""
    yield (
        f'<g><title>{html.escape(about)}</title><rect x="{left:.2f}" y="{top:.0f}" width="{width:.2f}" '
        f'height="{_ROW}" rx="2" fill="{_color(frame.name)}"/>'
        + (f'<text x="{left + 4:.2f}" y="{top + 14:.0f}">{html.escape(shown)}</text>' if shown else "")
        + "</g>"
    )
    for child in sorted(frame.children.values(), key=lambda one: -one.time):
        yield from _draw(child, left, top - _ROW, scale, whole)
        left += child.time * scale


_FIXED: Mapping[str, str] = {"forward": "#7cc4ff", "backward": "#ffb366", _HOST: "#c9ced6"}


def _color(name: str) -> str:
    """A warm color of its own for each name, the same each time."""
    if name in _FIXED:
        return _FIXED[name]
    number = sum(ord(letter) * (at + 7) for at, letter in enumerate(name))
    return f"hsl({20 + number % 40} {70 + number % 20}% {62 + number % 12}%)"
