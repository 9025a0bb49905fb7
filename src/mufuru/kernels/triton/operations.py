"""The composition operations in Triton: each value beside its derivatives by s and by v. Codes are those of `ops.py`.

An operation that is not here is generated from its Python function, see `own.py`.

A kernel calls them through `composed`, never as arguments: Triton's cache of compiled kernels knows what a kernel's
source mentions, and not what is handed to it.
"""

import triton
import triton.language as tl

from mufuru.ops import CUSTOM

OWN = tl.constexpr(CUSTOM)
"""Codes from here on number the functions that a kernel is given."""


@triton.jit
def keep(s, v):
    return s, tl.full(s.shape, 1.0, tl.float32), tl.full(s.shape, 0.0, tl.float32)


@triton.jit
def replace(s, v):
    return v, tl.full(s.shape, 0.0, tl.float32), tl.full(s.shape, 1.0, tl.float32)


@triton.jit
def larger(s, v):
    # at s == v torch halves the gradient between both sides; NaN comes through from either
    tie = tl.where(s == v, 0.5, 0.0)
    return tl.where((s > v) | (s != s), s, v), tl.where(s > v, 1.0, tie), tl.where(s < v, 1.0, tie)


@triton.jit
def smaller(s, v):
    tie = tl.where(s == v, 0.5, 0.0)
    return tl.where((s < v) | (s != s), s, v), tl.where(s < v, 1.0, tie), tl.where(s > v, 1.0, tie)


@triton.jit
def mul(s, v):
    return s * v, v, s


@triton.jit
def diff(s, v):
    # the gradient of |s - v| is 0 at s == v
    half = tl.where(s > v, 0.5, tl.where(s < v, -0.5, 0.0))
    return 0.5 * tl.abs(s - v), half, -half


@triton.jit
def forget(s, v):
    zero = tl.full(s.shape, 0.0, tl.float32)
    return zero, zero, zero


@triton.jit
def sqr_diff(s, v):
    return 0.25 * (s - v) * (s - v), 0.5 * (s - v), 0.5 * (v - s)


@triton.jit
def negate(s, v):
    return -s, tl.full(s.shape, -1.0, tl.float32), tl.full(s.shape, 0.0, tl.float32)


@triton.jit
def add(s, v):
    return s + v, tl.full(s.shape, 1.0, tl.float32), tl.full(s.shape, 1.0, tl.float32)


@triton.jit
def composed(CODE: tl.constexpr, FUNCTIONS: tl.constexpr, s, v):
    """The operation's value, and its derivatives by s and by v."""
    if CODE == 0:
        value, ds, dv = keep(s, v)
    elif CODE == 1:
        value, ds, dv = replace(s, v)
    elif CODE == 2:
        value, ds, dv = larger(s, v)
    elif CODE == 3:
        value, ds, dv = smaller(s, v)
    elif CODE == 4:
        value, ds, dv = mul(s, v)
    elif CODE == 5:
        value, ds, dv = diff(s, v)
    elif CODE == 6:
        value, ds, dv = forget(s, v)
    elif CODE == 7:
        value, ds, dv = sqr_diff(s, v)
    elif CODE == 8:
        value, ds, dv = negate(s, v)
    elif CODE == 9:
        value, ds, dv = add(s, v)
    else:
        value, ds, dv = FUNCTIONS[CODE - OWN](s, v)
    return value, ds, dv


CODES = range(10)
"""The codes that `composed` knows; others are generated from Python."""
