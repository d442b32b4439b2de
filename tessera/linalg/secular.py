"""The secular equation: eigenvalues of a diagonal matrix and a matrix of rank one, and vectors that are orthogonal.

The eigenvalues of `diag(d) + z z^T` are the roots of `f(x) = 1 + sum z_i^2 / (d_i - x)`, one between each two poles
and one above the last. Each is found as a pole, the nearer one, and a shift from it, so that its distances from all
poles have all their digits. A step takes the root of `c + s / (d_j - x) + S / (d_k - x)` that has the value of `f`, and
its slopes by the poles on the left and on the right (Bunch, Nielsen and Sorensen); a bracket takes its middle where
that root is not inside. All roots of all matrices take their steps together; one that is found stays as it is.

Poles may be squares of which only the roots are given, as for singular values: only differences of poles are computed.

Vectors `z_i / (d_i - x_j)` of such roots are not orthogonal where roots are near to poles. They are those of another
`z`, for which the roots found are exact (Gu and Eisenstat): it is a product of quotients of distances, and differs from
the given one by rounding alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera.api.control import while_loop
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import dtype_of, epsilon_of, index_of
from tessera.types.dtype import i64

TRIPS = 100
"""Steps after which the loop ends; roots take 2 to 8, and bisection no more than digits."""


class Roots(NamedTuple):
    """Roots [M, n] as poles and shifts from them; where `z` is zero the root is the pole, and `is_open` is false.

    With `has_squares` poles are the squares of `poles`, and the shifts are from such.
    """

    poles: Any
    origin: Any
    shift: Any
    is_open: Any
    has_squares: bool


def subtract(x: Any, y: Any, has_squares: bool) -> Any:
    """The difference of two poles."""
    return (x - y) * (x + y) if has_squares else x - y


def distances(roots: Roots) -> Any:
    """[M, i, j]: pole i less root j."""
    poles, origin = roots.poles[:, :, None], roots.origin[:, None, :]
    return subtract(poles, origin, roots.has_squares) - roots.shift[:, None, :]


def values_of(roots: Roots) -> Any:
    """The roots themselves, or with `has_squares` their square roots."""
    origin, shift = roots.origin, roots.shift
    if not roots.has_squares:
        return origin + shift
    root = origin + ops.sqrt(ops.maximum(origin * origin + shift, 0.0))
    return origin + ops.where(root == 0, 0.0, shift / ops.where(root == 0, 1.0, root))


def _evaluate(gaps: Any, squares: Any) -> tuple[Any, Any, Any, Any]:
    """`f`, its slopes by the poles on the left and on the right, and the sum of the magnitudes of its terms."""
    terms = squares[:, :, None] / gaps
    slopes = terms / gaps
    left = ops.sum(ops.where(gaps < 0, slopes, 0.0), 1)
    right = ops.sum(ops.where(gaps < 0, 0.0, slopes), 1)
    return 1.0 + ops.sum(terms, 1), left, right, 1.0 + ops.sum(ops.abs(terms), 1)


def _choose_root(a: Any, b: Any, c: Any, base: Any, low: Any, high: Any) -> Any:
    """`base` and the root of `c x^2 - a x + b` that with it is between `low` and `high`, or their middle."""
    root = ops.sqrt(ops.maximum(a * a - 4.0 * b * c, 0.0))
    q = a + ops.copysign(root, a)
    first = base + 2.0 * b / ops.where(q == 0, 1.0, q)
    second = base + q / ops.where(c == 0, 1.0, 2.0 * c)
    is_second = (second > low) & (second < high) & (c != 0)
    other = ops.where(is_second, second, 0.5 * (low + high))
    return ops.where((first > low) & (first < high) & (q != 0), first, other)


def solve_secular(poles: Any, z: Any, *, has_squares: bool = False) -> Roots:
    """The roots for [M, n] poles, ascending where `z` is not zero; no two of these may be equal."""

    def apart(x: Any, y: Any) -> Any:
        return subtract(x, y, has_squares)

    size, eps = poles.shape[-1], epsilon_of(dtype_of(poles))
    is_open, squares = z != 0, z * z
    index, total = index_of(size), ops.sum(squares, -1, keepdims=True)
    top = ops.max(ops.where(is_open, poles, ops.min(poles, -1, keepdims=True)), -1, keepdims=True)
    top = ops.sqrt(top * top + total) if has_squares else top + total
    # The pole after each one; after the last it is a bound, at which there is none.
    following = ops.flip(ops.cummin(ops.flip(ops.where(is_open, index, size), -1), -1), -1)
    following = ops.concat([following[:, 1:], ops.full_like(following[:, :1], size)], -1)
    is_last, at = following == size, ops.minimum(following, size - 1)
    after = ops.where(is_last, top, ops.take_along_axis(poles, at, -1))
    next_square = ops.where(is_last, 0.0, ops.take_along_axis(squares, at, -1))
    # What has no weight is moved to where no root is.
    far = ops.where(is_open, poles, 2.0 * ops.abs(top) + total + 1.0)
    # The last root is up to `total` above its pole, all digits of which the bound itself does not have.
    above_last = ops.broadcast_to(1.125 * total, poles.shape)
    gap = ops.where(is_open, ops.where(is_last, above_last, apart(after, poles)), 1.0)
    middle = 0.5 * gap
    value = _evaluate(distances(Roots(far, poles, middle, is_open, has_squares)), squares)[0]
    is_left = is_last | (value >= 0)
    origin = ops.where(is_left, poles, after)
    low = ops.where(is_left, ops.where(value >= 0, 0.0, middle), -middle)
    high = ops.where(is_left, ops.where(value >= 0, middle, gap), 0.0)
    both = squares + next_square
    rest = value + (squares - next_square) / middle
    a = ops.where(is_left, rest, -rest) * gap + both
    b = ops.where(is_left, squares, -next_square) * gap
    start = _choose_root(a, b, rest, ops.zeros_like(poles), low, high)

    def is_unfinished(state: Any) -> Any:
        return (state[0] < TRIPS) & ops.any(~state[4])

    def step(state: Any) -> Any:
        trips, shift, low, high, is_done = state
        value, left, right, magnitude = _evaluate(distances(Roots(far, origin, shift, is_open, has_squares)), squares)
        low, high = ops.where(value < 0, shift, low), ops.where(value > 0, shift, high)
        below, above = apart(poles, origin) - shift, ops.where(is_last, above_last, apart(after, origin)) - shift
        c = value - below * left - above * right
        product = below * above
        a = (below + above) * value - product * (left + right)
        moved = _choose_root(a, product * value, c, shift, low, high)
        is_done = is_done | (ops.abs(value) <= 8.0 * eps * magnitude) | ~((moved > low) & (moved < high))
        return trips + 1, ops.where(is_done, shift, moved), low, high, is_done

    state = ops.zeros((), i64), ops.where(is_open, start, 0.0), low, high, ~is_open
    shift = while_loop(is_unfinished, step, state)[1]
    return Roots(poles, ops.where(is_open, origin, poles), shift, is_open, has_squares)


def correct_weights(roots: Roots, z: Any) -> Any:
    """The `z`, but for a factor, of which the roots are exact, with the signs of the given one."""
    poles, is_open = roots.poles, roots.is_open
    index = index_of(poles.shape[-1])
    is_own = index[:, None] == index
    apart = subtract(poles[:, :, None], poles[:, None, :], roots.has_squares)
    is_counted = is_open[:, :, None] & is_open[:, None, :]
    divisor = ops.where(is_own, -1.0, apart)
    quotients = ops.where(is_counted, distances(roots) / ops.where(is_counted, divisor, 1.0), 1.0)
    return ops.where(is_open, ops.copysign(ops.sqrt(ops.prod(quotients, 2)), z), 0.0)
