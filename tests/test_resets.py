"""`resets=`: a row with resets is several documents, and each gives what it gives as a sequence of its own."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from kernel_calls import MANY, UNEVEN, assert_close, gradients, leaves_of, make_call, needs_native, outputs_of
from oracle import Options
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, vmap
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru import MuFuRU, export, use_kernel
from mufuru.kernels import native, reference
from mufuru.kernels.call import Call, Masks, Result
from mufuru.kernels.segments import run_in_segments

STEPS, BATCH, N, M, K = 7, 4, 3, 5, 2
LENGTHS = (7, 0, 3, 5)


def own(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sin(v)


def cuts(resets: Tensor, length: int) -> list[tuple[int, int]]:
    """Where each document of one row begins and ends; a row without steps has none."""
    ends = [*(t for t in range(1, length) if resets[t]), *[length] * (length > 0)]
    return list(zip([0, *ends], ends, strict=False))


# the kernels


def rows_of(call: Call) -> list[list[int]]:
    """The packed rows of each sequence, by step."""
    found: list[list[int]] = [[] for _ in call.s0]
    first = 0
    for alive in call.sizes():
        for i in range(alive):
            found[i].append(first + i)
        first += alive
    return found


def apart(call: Call) -> Result:
    """Every document as a run of its own, by the reference."""
    assert call.masks.resets is not None
    parts: dict[str, list[Tensor]] = {name: [] for name in ("output", "p", "v")}
    places, ends, k_ends = [], [], []
    for i, rows in enumerate(rows_of(call)):
        ordered = torch.tensor(rows[::-1] if call.reverse else rows, dtype=torch.int64)
        end = call.s0[i : i + 1]
        k_end = None if call.k0 is None else call.k0[i : i + 1]
        for begin, stop in cuts(call.masks.resets[ordered], len(rows)):
            chosen = ordered[begin:stop]
            masks = Masks(
                None if call.masks.state is None else call.masks.state[i : i + 1],
                None if call.masks.zoneout is None else call.masks.zoneout[chosen],
                None if call.masks.allowed is None else call.masks.allowed[i : i + 1],
            )
            k0 = None if call.k0 is None else call.k0[i : i + 1]
            document = call._replace(
                x=call.x[chosen], s0=call.s0[i : i + 1], k0=k0, batch_sizes=None, reverse=False, masks=masks
            )
            result = reference.sequence(document)
            end, k_end = result.s_n, result.k_n
            places.append(chosen)
            for name, found in parts.items():
                found += [] if getattr(result, name) is None else [getattr(result, name)]
        ends.append(end)
        k_ends += [] if k_end is None else [k_end]
    back = torch.cat(places).argsort()
    joined = {name: torch.cat(found)[back] for name, found in parts.items() if found}
    return Result(s_n=torch.cat(ends), k_n=torch.cat(k_ends) if k_ends else None, **joined)


def in_segments(call: Call) -> Result:
    return run_in_segments(call, 2, reference.sequence)


# `scan` and ONNX need a graph: exported layers, below, are made of them
KERNELS: dict[str, Callable[[Call], Result]] = {
    "reference": reference.sequence, "native": native.sequence, "segments": in_segments,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "paper": {},
    "reverse": {"reverse": True},
    "packed": {"batch_sizes": UNEVEN},
    "packed, reverse": {"batch_sizes": UNEVEN, "reverse": True},
    "masks": {"masks": ("state", "zoneout", "allowed"), "batch_sizes": UNEVEN},
    "masks, reverse": {"masks": ("state", "zoneout", "allowed"), "reverse": True, "reset": "after"},
    "controller": {"controller": 7, "batch_sizes": UNEVEN},
    "controller, reverse": {"controller": 7, "controller_activation": "relu", "reverse": True, "reset": None},
    "many": {"batch": MANY, "steps": 6},
    "own operation": {"ops": ("keep", own, "replace"), "batch_sizes": UNEVEN},
    "own operation, controller": {"ops": ("keep", own, "replace"), "controller": 7, "reverse": True},
}


@needs_native
@pytest.mark.parametrize("options", RUNS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_keep_documents_apart(kernel: str, options: str) -> None:
    settings = dict(RUNS[options])
    call = make_call(**settings | {"masks": (*settings.get("masks", ()), "resets")})
    leaves, expected = leaves_of(call), apart(call)
    found = KERNELS[kernel](call)
    assert_close(outputs_of(found), outputs_of(expected))
    assert_close(gradients(found, leaves), gradients(expected, leaves))


@needs_native
@pytest.mark.parametrize("share", [0.0, 1.0], ids=["none", "all"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_step_or_every_step(kernel: str, share: float) -> None:
    call = make_call(controller=7, batch_sizes=UNEVEN)
    resets = torch.full((len(call.x),), share).bool()
    call = call._replace(masks=Masks(resets=resets))
    assert_close(outputs_of(KERNELS[kernel](call)), outputs_of(apart(call)))


# the layer


def double(**options: Any) -> MuFuRU:
    """Parameters far from their first values, biases and learned states too."""
    layer = MuFuRU(N, M, dtype=torch.float64, **options)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.9, 0.9)
    return layer


def drawn(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.rand(steps, batch) < 0.35


def state(layer: MuFuRU, batch: int = BATCH) -> Any:
    units = layer.num_layers * layer.num_directions
    h = torch.randn(units, batch, M, dtype=torch.float64, requires_grad=True)
    if layer.controller_size is None:
        return h
    return h, torch.rand(units, batch, K, dtype=torch.float64, requires_grad=True)


def flat(h: Any) -> tuple[Tensor, ...]:
    return h if isinstance(h, tuple) else () if h is None else (h,)


def split(layer: MuFuRU, x: Tensor, resets: Tensor, hx: Any = None, lengths: Any = None) -> dict[str, Tensor]:
    """Every document of a time-first batch by itself: output, zero past the ends, and final states."""
    columns, finals = [], []
    learned = [getattr(layer, name) for name in ("h_0", "k_0")[: len(layer._state_sizes)] if layer.learn_initial_state]
    for b in range(x.size(1)):
        length = len(x) if lengths is None else int(lengths[b])
        first = tuple(h[:, b] for h in flat(hx)) or tuple(learned)
        one = None if hx is None else first if len(first) == 2 else first[0]
        results = [layer(x[begin:end, b], one) for begin, end in cuts(resets[:, b], length)]
        rest = x.new_zeros(len(x) - length, M * layer.num_directions)
        columns.append(torch.cat([*(output for output, _ in results), rest]))
        ends = [flat(h) for _, h in results]
        if not ends:
            zeros = [x.new_zeros(len(layer._units), size) for size in layer._state_sizes.values()]
            finals.append(list(first or zeros))
            continue
        forward = torch.arange(len(layer._units)) % layer.num_directions == 0
        # forward ends with the last document, reverse with the first
        finals.append([torch.where(forward[:, None], last, h) for h, last in zip(ends[0], ends[-1], strict=True)])
    stacked = [torch.stack(parts, 1) for parts in zip(*finals, strict=True)]
    return {"output": torch.stack(columns, 1), **dict(zip(("h_n", "k_n"), stacked, strict=False))}


def together(layer: MuFuRU, form: str, x: Tensor, resets: Tensor, hx: Any, lengths: Any) -> dict[str, Tensor]:
    """The same by `resets=`, in one call."""
    if form == "packed":
        packed, mask = (pack_padded_sequence(t, lengths, enforce_sorted=False) for t in (x, resets))
        output, h_n = layer(packed, hx, resets=mask)
        output = pad_packed_sequence(output, total_length=len(x))[0]
    elif form == "batch_first":
        output, h_n = layer(x.transpose(0, 1), hx, lengths, resets.t())
        output = output.transpose(0, 1)
    elif form == "one":
        one = None if hx is None else tuple(h[:, 0] for h in flat(hx))
        output, h_n = layer(x[:, 0], one if one is None or len(one) == 2 else one[0], resets=resets[:, 0])
        output, h_n = output.unsqueeze(1), tuple(h.unsqueeze(1) for h in flat(h_n))
    else:
        output, h_n = layer(x, hx, lengths, resets)
    return {"output": output, **dict(zip(("h_n", "k_n"), flat(h_n), strict=False))}


def assert_split(layer: MuFuRU, form: str = "padded", given: bool = True, lengths: Any = None) -> None:
    batch = 1 if form == "one" else BATCH if lengths is None else len(lengths)
    x = torch.randn(STEPS, batch, N, dtype=torch.float64, requires_grad=True)
    hx, resets = state(layer, batch) if given else None, drawn(batch=batch)
    with use_kernel("reference"):
        expected = split(layer, x, resets, hx, lengths)
    found = together(layer, form, x, resets, hx, lengths)
    leaves = {"x": x, **{f"h{i}": h for i, h in enumerate(flat(hx))}, **dict(layer.named_parameters())}
    assert_close(found, expected)
    outputs = list(expected)
    weights = [torch.randn_like(expected[name]) for name in outputs]
    slopes = [
        torch.autograd.grad([result[name] for name in outputs], list(leaves.values()), weights, materialize_grads=True)
        for result in (found, expected)
    ]
    assert_close(*(dict(zip(leaves, slope, strict=True)) for slope in slopes))


STACKS: dict[str, dict[str, Any]] = {
    "one": {},
    "both ways": {"bidirectional": True},
    "three, both ways": {"num_layers": 3, "bidirectional": True},
    "controller": {"num_layers": 2, "bidirectional": True, "controller_size": K},
    "learned": {"num_layers": 2, "learn_initial_state": True, "controller_size": K},
    "own operation": {"ops": ("keep", own, "replace"), "bidirectional": True},
    "segments": {"checkpoint_every": 2, "num_layers": 2, "bidirectional": True, "controller_size": K},
}


@needs_native
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("kernel", ["reference", "native"])
def test_a_layer_keeps_documents_apart(kernel: Any, stack: str) -> None:
    layer = double(kernel=kernel, **STACKS[stack])
    assert_split(layer, given=stack != "learned")
    assert_split(layer, given=stack != "learned", lengths=LENGTHS)


@pytest.mark.parametrize("stack", ["one", "both ways", "controller"])
@pytest.mark.parametrize(("form", "lengths"), [("packed", (3, 7, 1, 5)), ("batch_first", LENGTHS), ("one", None)])
def test_however_sequences_come(form: str, lengths: Any, stack: str) -> None:
    assert_split(double(batch_first=form == "batch_first", **STACKS[stack]), form, lengths=lengths)


@pytest.mark.parametrize("stack", ["both ways", "controller"])
def test_oracles_values(stack: str) -> None:
    layer = double(num_layers=2, **{name: value for name, value in STACKS[stack].items() if name != "num_layers"})
    x, resets = torch.randn(STEPS, BATCH, N, dtype=torch.float64), drawn()
    hx = state(layer)
    options = Options(M, layer.ops, controller=layer.controller_size)
    arrays = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    output, _ = layer(x, hx, resets=resets)
    for b in range(BATCH):
        places = cuts(resets[:, b], STEPS)
        first = [h[:, b : b + 1].expand(-1, len(places), -1).detach().numpy() for h in flat(hx)]
        documents = [x[begin:end, b].numpy() for begin, end in places]
        h0, k0 = first if len(first) == 2 else (first[0], None)
        wanted = oracle.network(options, arrays, documents, h0, k0, layers=2, directions=2).outputs
        # float64 sums of a few dozen terms in another order
        np.testing.assert_allclose(output[:, b].detach().numpy(), np.concatenate(wanted), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["reference", "native"])
@needs_native
def test_nothing_crosses_a_reset(kernel: Any) -> None:
    layer = MuFuRU(N, M, 2, bidirectional=True, kernel=kernel)
    x, hx = torch.randn(6, 1, N, requires_grad=True), torch.randn(4, 1, M, requires_grad=True)
    resets = torch.arange(6).unsqueeze(1) == 3
    output, _ = layer(x, hx, resets=resets)
    for outside, inside in ((slice(0, 3), slice(3, 6)), (slice(3, 6), slice(0, 3))):
        slope, first = torch.autograd.grad(output[inside].square().sum(), (x, hx), retain_graph=True)
        assert not slope[outside].any()
        assert slope[inside].any()
        assert first.flatten(1).any(1).all()  # every layer and direction began anew on either side


@needs_native
@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("options", [{}, {"controller_size": K, "num_layers": 2, "bidirectional": True}], ids=str)
def test_what_changes_nothing(kernel: Any, options: Any) -> None:
    """No reset, a reset at the first step, and resets past the end: the same bits."""
    layer = MuFuRU(N, M, kernel=kernel, **options)
    x, lengths = torch.randn(STEPS, BATCH, N), torch.tensor(LENGTHS)
    past = torch.arange(STEPS).unsqueeze(1) >= lengths
    first = torch.arange(STEPS).unsqueeze(1).expand(-1, BATCH) == 0
    wanted = layer(x, lengths=lengths)
    for resets in (torch.zeros(STEPS, BATCH).bool(), first, past, past | first):
        torch.testing.assert_close(layer(x, lengths=lengths, resets=resets), wanted, rtol=0, atol=0)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, lengths=lengths, resets=resets), wanted, rtol=0, atol=0)


@needs_native
@pytest.mark.usefixtures("_threads")
def test_any_layout_and_threads_give_the_same_bits() -> None:
    layer, x, resets = MuFuRU(N, 40, 2, bidirectional=True), torch.randn(30, 9, N), torch.rand(30, 9) < 0.2
    wanted = layer(x, resets=resets)
    wide = torch.zeros(60, 18, dtype=torch.bool)
    wide[::2, ::2] = resets
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for mask in (resets, wide[::2, ::2], resets.t().contiguous().t()):
            torch.testing.assert_close(layer(x, resets=mask), wanted, rtol=0, atol=0)
    column = torch.zeros(30, 1, dtype=torch.bool)
    column[4] = True
    same = column.expand(30, 9)
    torch.testing.assert_close(layer(x, resets=same), layer(x, resets=same.contiguous()), rtol=0, atol=0)


@pytest.mark.parametrize(("steps", "batch"), [(0, 0), (0, 3), (2, 0)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_nothing_to_read(steps: int, batch: int, batch_first: bool) -> None:
    layer = double(num_layers=2, bidirectional=True, batch_first=batch_first)
    shape = (batch, steps) if batch_first else (steps, batch)
    x, resets = torch.zeros(*shape, N, dtype=torch.float64), torch.ones(shape).bool()
    torch.testing.assert_close(layer(x, resets=resets), layer(x), rtol=0, atol=0)


@needs_native
@pytest.mark.parametrize("kernel", ["reference", "native"])
def test_trace_shows_the_state_that_each_step_began_with(kernel: Any) -> None:
    layer = double(num_layers=2, bidirectional=True, kernel=kernel)
    x, hx, resets = torch.randn(STEPS, BATCH, N, dtype=torch.float64), state(layer), drawn()
    trace = layer.trace(x, hx, LENGTHS, resets)
    for index in range(4):
        place, outputs = divmod(index, 2), trace.outputs(*divmod(index, 2))
        # a state is the sum of what the operations made of the one before
        torch.testing.assert_close(trace.contributions(*place).sum(-2), outputs)
        for b, length in enumerate(LENGTHS):
            for begin, end in cuts(resets[:, b], length):
                first = end - 1 if index % 2 else begin
                assert torch.equal(trace.states(*place)[first, b], hx[index, b])
    packed, mask = (pack_padded_sequence(t, (3, 7, 1, 5), enforce_sorted=False) for t in (x, resets))
    again = layer.trace(packed, hx, resets=mask)
    torch.testing.assert_close(again.contributions(1, 1).sum(-2), again.outputs(1, 1))


@needs_native
@pytest.mark.parametrize("options", [{}, {"controller_size": K, "bidirectional": True}], ids=str)
def test_gradcheck(options: Any) -> None:
    layer = double(kernel="native", **options)
    x, resets = torch.randn(4, 2, N, dtype=torch.float64, requires_grad=True), drawn(4, 2)
    resets[2, 0] = True
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Tensor, *weights: Tensor) -> Any:
        hx = weights[0] if layer.controller_size is None else weights[:2]
        named = dict(zip(names, weights[-len(names) :], strict=True))
        output, final = functional_call(layer, named, (x, hx), {"resets": resets})
        return output, *flat(final)

    tensors = (x, *flat(state(layer, 2)), *(p.detach().clone().requires_grad_() for p in layer.parameters()))
    assert gradcheck(call, tensors, fast_mode=True)
    assert gradgradcheck(call, tensors, fast_mode=True)


def test_noise_is_one_mask_per_row() -> None:
    """Seeds mean the same on both kernels, and a reset changes no draw."""
    options: dict[str, Any] = {"zoneout": 0.3, "state_dropout": 0.3, "op_dropout": 0.3, "input_dropout": 0.2}
    layer = double(num_layers=2, bidirectional=True, **options)
    x, resets, results = torch.randn(STEPS, BATCH, N, dtype=torch.float64), drawn(), []
    for kernel in ("auto", "reference"):
        layer.kernel = kernel
        torch.manual_seed(3)
        output, h_n = layer(x, resets=resets)
        slopes = torch.autograd.grad(output.square().sum() + h_n.sum(), [*layer.parameters()])
        results.append({str(i): tensor for i, tensor in enumerate((output, h_n, *slopes))})
    assert_close(*results)


@needs_native
@pytest.mark.parametrize("kernel", ["reference", "native"])
def test_function_transforms(kernel: Any) -> None:
    layer = double(bidirectional=True, kernel=kernel)
    x, resets = torch.randn(2, STEPS, BATCH, N, dtype=torch.float64), torch.stack([drawn(), drawn()])
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(weights: Any, x: Tensor, resets: Tensor) -> Tensor:
        output, h_n = functional_call(layer, weights, (x,), {"resets": resets})
        return torch.as_tensor(output.square().sum() + h_n.sum())

    mapped, one = (
        vmap(grad(loss), (None, 0, dim))(weights, x, resets[0] if dim is None else resets) for dim in (0, None)
    )
    for i in range(2):
        each = grad(loss)(weights, x[i], resets[i])
        value = loss(dict(layer.named_parameters()), x[i], resets[i])
        slopes = torch.autograd.grad(value, [*layer.parameters()])
        assert_close(each, dict(zip(weights, slopes, strict=True)))
        assert_close({name: found[i] for name, found in mapped.items()}, each)
    assert_close({name: found[0] for name, found in one.items()}, grad(loss)(weights, x[0], resets[0]))


def test_segments_on_another_default_device() -> None:
    layer, x, resets = MuFuRU(N, M, checkpoint_every=2), torch.randn(STEPS, BATCH, N), torch.rand(STEPS, BATCH) < 0.5
    with torch.device("meta"):
        found = layer(x, resets=resets, lengths=LENGTHS)[0], layer(x, resets=resets)[0]
    wanted = layer(x, resets=resets, lengths=LENGTHS)[0], layer(x, resets=resets)[0]
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    layer = MuFuRU(N, M, 2, bidirectional=True, dtype=dtype)
    x, resets = torch.randn(STEPS, 1, N, dtype=dtype), drawn(batch=1)
    output, _ = layer(x, resets=resets)
    alone = torch.cat([layer(x[begin:end])[0] for begin, end in cuts(resets[:, 0], STEPS)])
    torch.testing.assert_close(output, alone, rtol=0, atol=0)


@needs_native
def test_recorded_by_fx() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = MuFuRU(N, M)

        def forward(self, x: Tensor, resets: Tensor) -> Any:
            return self.rnn(x, resets=resets)

    model, x, resets = Model(), torch.randn(STEPS, BATCH, N), drawn()
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x, resets), model(x, resets), rtol=0, atol=0)


# graphs

SIZES = ((5, 3), (6, 4), (40, 2))


def outcome(module: Any, layer: MuFuRU, x: Tensor, **options: Any) -> list[Tensor]:
    output, h_n = module(x, **options)
    parts = [output, *flat(h_n)]
    total = torch.stack([part.square().sum() for part in parts]).sum()
    return [*parts, *torch.autograd.grad(total, [x, *layer.parameters()])]


@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("backend", "with_lengths", "options"),
    [
        ("aot_eager", False, {"num_layers": 2, "bidirectional": True, "controller_size": K}),
        ("aot_eager", True, {"kernel": "reference", "bidirectional": True}),
        ("aot_eager", True, {"ops": ("keep", own, "replace"), "batch_first": True}),
        ("inductor", True, {"bidirectional": True}),
    ],
    ids=["both ways", "reference", "own operation", "inductor"],
)
def test_compiled(backend: str, with_lengths: bool, options: Any) -> None:
    torch.compiler.reset()
    layer = MuFuRU(N, M, **options)
    module = torch.compile(layer, fullgraph=True, backend=backend)
    for steps, batch in SIZES:
        shape = (batch, steps) if layer.batch_first else (steps, batch)
        x, resets = torch.randn(*shape, N, requires_grad=True), torch.rand(shape) < 0.3
        more = {"lengths": torch.randint(0, steps + 1, (batch,))} if with_lengths else {}
        found, wanted = (outcome(call, layer, x, resets=resets, **more) for call in (module, layer))
        # the same kernel runs, but sums of gradients may be taken in another order
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


EXPORTED: dict[str, dict[str, Any]] = {
    "both ways": {"bidirectional": True},
    "controller": {"controller_size": K, "learn_initial_state": True, "batch_first": True},
    "gru": {"ops": ("keep", "replace")},
}
UNSEEN = ((1, 1), (9, 2), (30, 5))


def arguments(layer: MuFuRU, steps: int, batch: int, with_lengths: bool) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    more = {"lengths": torch.randint(0, steps + 1, (batch,))} if with_lengths else {}
    return (torch.randn(*shape, N),), {**more, "resets": torch.rand(shape) < 0.3}


@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("portable", [False, True], ids=["operator", "portable"])
@pytest.mark.parametrize(("options", "with_lengths"), [("both ways", True), ("controller", False)])
def test_exported_and_loaded(options: str, with_lengths: bool, portable: bool) -> None:
    layer, file = MuFuRU(N, M, **EXPORTED[options]), io.BytesIO()
    args, kwargs = arguments(layer, 5, 3, with_lengths)
    torch.export.save(export.program(layer, args, kwargs, portable=portable), file)
    file.seek(0)
    program = torch.export.load(file).module()
    for steps, batch in UNSEEN:
        args, kwargs = arguments(layer, steps, batch, with_lengths)
        torch.testing.assert_close(program(*args, **kwargs), layer(*args, **kwargs), rtol=1e-6, atol=1e-6)


def test_one_sequence_exported() -> None:
    layer = MuFuRU(N, M, bidirectional=True)
    program = export.program(layer, (torch.randn(5, N),), {"resets": drawn()[:5, 0]}).module()
    x, resets = torch.randn(STEPS, N), drawn()[:, 0]
    torch.testing.assert_close(program(x, resets=resets), layer(x, resets=resets), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("options", "with_lengths"), [("both ways", True), ("controller", False), ("gru", False)])
def test_onnx(options: str, with_lengths: bool, tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer = MuFuRU(N, M, **EXPORTED[options])
    args, kwargs = arguments(layer, 5, 3, with_lengths)
    export.onnx(layer, tmp_path / "layer.onnx", args, kwargs)
    session = runtime.InferenceSession(str(tmp_path / "layer.onnx"))
    for steps, batch in UNSEEN:
        args, kwargs = arguments(layer, steps, batch, with_lengths)
        tensors = zip(session.get_inputs(), (*args, *kwargs.values()), strict=True)
        found = session.run(None, {info.name: value.numpy() for info, value in tensors})
        output, h_n = layer(*args, **kwargs)
        wanted = [part.detach().numpy() for part in (output, *flat(h_n))]
        for one, other in zip(found, wanted, strict=True):
            # two implementations in float32 over 30 steps
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


# validation

X = torch.zeros(STEPS, BATCH, N)
MASK = torch.zeros(STEPS, BATCH, dtype=torch.bool)


def packed(tensor: Tensor, lengths: Any = (3, 7, 1, 5)) -> PackedSequence:
    return pack_padded_sequence(tensor, lengths, enforce_sorted=False)


WRONG: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "numbers": (
        X,
        MASK.float(),
        TypeError,
        "resets should be torch.bool, got torch.float32: convert them with .bool()",
    ),
    "batch first": (X, MASK.t(), ValueError, "resets should have the shape [7, 4], one Boolean for each step of the"),
    "one column": (X, MASK[:, 0], ValueError, "got [7]"),
    "one sequence": (X[:, 0], MASK, ValueError, "resets should have the shape [7]"),
    "list": (X, MASK.tolist(), TypeError, "resets should be a tensor as the input is, got list"),
    "packed for padded": (X, packed(MASK), TypeError, "resets should be a tensor as the input is, got PackedSequence"),
    "padded for packed": (
        packed(X),
        MASK,
        TypeError,
        "with a PackedSequence resets should be one too, got Tensor: pack",
    ),
    "other lengths": (packed(X), packed(MASK, (3, 7, 2, 5)), ValueError, "the batch_sizes and sorted_indices of the"),
    "other order": (packed(X), packed(MASK, (7, 3, 1, 5)), ValueError, "the batch_sizes and sorted_indices of the"),
    "packed numbers": (packed(X), packed(MASK.float()), TypeError, "resets should be torch.bool, got torch.float32"),
    "elsewhere": (X, MASK.to("meta"), RuntimeError, "resets should be on cpu as the input, got meta: move them"),
    "sparse": (X, MASK.to_sparse(), TypeError, "resets should be a dense tensor"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str) -> None:
    x, resets, error, text = WRONG[case]
    with pytest.raises(error) as caught:
        MuFuRU(N, M)(x, resets=resets)
    assert text in str(caught.value)
