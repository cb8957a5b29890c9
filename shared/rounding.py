"""Functions that round quotients and fractions of counts.

Always use these functions to round counts. Otherwise, two processes could get counts that differ by
one.
"""

import math


def ceil_div(count: int, size: int) -> int:
    """Computes ceil(count / size) exactly: how many parts of at most `size` make up `count`.

    The expression `math.ceil(count / size)` divides floats, so its result is wrong for some large
    counts.

    >>> ceil_div(7, 2), ceil_div(6, 2), ceil_div(0, 2)
    (4, 3, 0)
    >>> ceil_div(2**60 + 1, 2**30) - math.ceil((2**60 + 1) / 2**30)
    1
    """
    return -(-count // size)


def share(fraction: float, of: int) -> int:
    """Computes `ceil(fraction * of)`, but ignores a small rounding error of the product.

    >>> 0.07 * 100, share(0.07, 100)
    (7.000000000000001, 7)
    """
    return math.ceil(fraction * of - 1e-9)


def floor_share(fraction: float, of: int) -> int:
    """Computes `floor(fraction * of)`, but ignores a small rounding error of the product.

    >>> 0.58 * 50, floor_share(0.58, 50)
    (28.999999999999996, 29)
    """
    return math.floor(fraction * of + 1e-9)
