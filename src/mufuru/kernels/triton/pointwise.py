"""Element-wise parts that all regimes share, on tiles of sequences by units, in float32."""

import triton
import triton.language as tl

from mufuru.kernels.triton.operations import composed

NO_RESET = tl.constexpr(0)
BEFORE = tl.constexpr(1)
AFTER = tl.constexpr(2)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
TANH = tl.constexpr(0)
SIGMOID = tl.constexpr(1)


@triton.jit
def long(x):
    """The number in 64 bits; a loop's number has no method for that in Triton's interpreter."""
    return tl.full((), 0, tl.int64) + x


@triton.jit
def span(step, batch, offsets):
    """First packed row of a step, as a 64-bit number, and how many sequences the step has."""
    if offsets is None:
        first = long(step) * batch
        alive = long(batch)
    else:
        first = tl.load(offsets + step)
        alive = tl.load(offsets + step + 1) - first
    return first, alive


@triton.jit
def dot(a, b, total, PRECISION: tl.constexpr):
    """The sum so far and the product of two tiles."""
    if INTERPRETED:
        # the interpreter's products would take bfloat16 for whole numbers
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def at(base, row, down, width, columns):
    """Addresses of a tile. Only its first row can be so far down that the offset needs 64 bits."""
    return base + row * width + (down * width)[:, None] + columns[None, :]


@triton.jit
def across(base, row, down, width, columns):
    """Addresses of a tile, transposed."""
    return base + row * width + (down * width)[None, :] + columns[:, None]


@triton.jit
def read(base, row, down, width, columns, mask):
    return tl.load(at(base, row, down, width, columns), mask=mask, other=0.0).to(tl.float32)


@triton.jit
def write(base, row, down, width, columns, mask, value):
    tl.store(at(base, row, down, width, columns), value.to(base.dtype.element_ty), mask=mask)


@triton.jit
def bias_of(bias, row: tl.constexpr, hidden, units, inside):
    """(1, units) of one block of the biases: 0 features, 1 features inside the reset gate, 2 reset, then logits."""
    if bias is None:
        biases = tl.full((1, units.shape[0]), 0.0, tl.float32)
    else:
        biases = tl.load(bias + row * hidden + units, mask=inside, other=0.0)[None, :]
    return biases


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == TANH:
        # near 0 the quotient would lose its digits, so there a polynomial, right to float32's last bit or two
        e = tl.exp(-2.0 * tl.abs(x))
        q = (1.0 - e) / (1.0 + e)
        x2 = x * x
        odd = x + x * x2 * (-0.33333333 + x2 * (0.13333333 + x2 * (-0.053968254 + x2 * 0.021869488)))
        y = tl.where(tl.abs(x) < 0.3, odd, tl.where(x < 0, -q, q))
    elif KIND == SIGMOID:
        y = sigmoid(x)
    else:
        y = tl.where(x <= 0, 0.0, x)  # NaN stays
    return y


@triton.jit
def pull_back(grad, y, KIND: tl.constexpr):
    """The gradient by what was activated, from that by the value y."""
    if KIND == TANH:
        pulled = grad * (1.0 - y * y)
    elif KIND == SIGMOID:
        pulled = grad * y * (1.0 - y)
    else:
        pulled = tl.where(y <= 0, 0.0, grad)
    return pulled


@triton.jit
def forbid(logit, allowed, row, down, live, j: tl.constexpr, COUNT: tl.constexpr):
    """The logit, or minus infinity where operation j is not allowed."""
    if allowed is None:
        masked = logit
    else:
        may = tl.load(allowed + row * COUNT + down * COUNT + j, mask=live, other=1)
        masked = tl.where((may != 0)[:, None], logit, float("-inf"))
    return masked


@triton.jit
def softmax(logits, COUNT: tl.constexpr):
    """Operation weights from logits, both tuples of tiles."""
    top = logits[0]
    for j in tl.static_range(1, COUNT):
        top = tl.maximum(top, logits[j])
    powers = ()
    total = tl.full(top.shape, 0.0, tl.float32)
    for j in tl.static_range(COUNT):
        power = tl.exp(logits[j] - top)
        total += power
        powers = powers + (power,)
    p = ()
    for j in tl.static_range(COUNT):
        p = p + (powers[j] / total,)
    return p


@triton.jit
def compose(s, v, p, OPS: tl.constexpr, FUNCTIONS: tl.constexpr):
    """The weighted sum of all operations."""
    new = tl.full(s.shape, 0.0, tl.float32)
    for j in tl.static_range(len(OPS)):
        value, _, _ = composed(OPS[j], FUNCTIONS, s, v)
        new += p[j] * value
    return new


@triton.jit
def decompose(grad, s, v, p, grads_p, OPS: tl.constexpr, FUNCTIONS: tl.constexpr):
    """Gradients by state, features and logits of `compose`; `grads_p` are those of the weights themselves, if any."""
    ds = tl.full(s.shape, 0.0, tl.float32)
    dv = tl.full(s.shape, 0.0, tl.float32)
    mean = tl.full(s.shape, 0.0, tl.float32)
    dp = ()
    for j in tl.static_range(len(OPS)):
        value, by_s, by_v = composed(OPS[j], FUNCTIONS, s, v)
        share = grad * p[j]
        ds += share * by_s
        dv += share * by_v
        by_p = grad * value
        if len(grads_p) > 0:
            by_p += grads_p[j]
        mean += p[j] * by_p
        dp = dp + (by_p,)
    logits = ()
    for j in tl.static_range(len(OPS)):
        logits = logits + (p[j] * (dp[j] - mean),)
    return ds, dv, logits
