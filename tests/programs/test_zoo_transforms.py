"""A program zoo: derivatives of every kind, function transforms, recomputation, graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, functionalize, grad, grad_and_value, jacrev, jvp, stack_module_state, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.flop_counter import FlopCounterMode
from zoo import Found, program, trained

from mufuru import MuFuRU

# torch's own, once, when forward mode or tracing is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning")
N, HIDDEN = 3, 20


def make(layer_type: Any, **options: Any) -> tuple[Any, Tensor]:
    return layer_type(N, HIDDEN, **options), torch.randn(5, 4, N)


class Model(nn.Module):
    def __init__(self, layer_type: Any) -> None:
        super().__init__()
        self.first, self.rnn, self.out = nn.Linear(N, N), layer_type(N, HIDDEN, 2, dropout=0.3), nn.Linear(HIDDEN, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.rnn(self.first(x).tanh())[0])
        return logits


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@program
def test_checkpoint(layer_type: Any, reentrant: bool) -> Found:
    """The layer within, with dropout and an evaluation between forward and backward."""
    model, x = Model(layer_type), torch.randn(5, 4, N, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(2):
        logits = checkpoint(model, x, use_reentrant=reentrant)
        optimizer.zero_grad()
        with torch.no_grad():
            model(x)
        logits.square().mean().backward()
        optimizer.step()
    return trained(model, logits=logits, x=x.grad)


@program
def test_checkpointed_steps_of_a_cell(cell_type: Any) -> Found:
    cell = cell_type(N, HIDDEN)
    h, outputs = torch.zeros(4, HIDDEN, requires_grad=True), []
    for step in torch.randn(5, 4, N):
        h = checkpoint(cell, step, h, use_reentrant=False)
        outputs.append(h)
    torch.stack(outputs).square().mean().backward()
    return trained(cell, h=h)


@program
def test_checkpoint_sequential(layer_type: Any) -> Found:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = layer_type(N, N)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.rnn(x)[0]
            return x + output

    blocks, x = nn.Sequential(*(Block() for _ in range(4))), torch.randn(5, 4, N, requires_grad=True)
    checkpoint_sequential(blocks, 2, x, use_reentrant=False).square().sum().backward()
    return trained(blocks, x=x.grad)


@program
def test_functional_call_and_gradient(layer_type: Any) -> Found:
    """A training step without a module's state: weights in, gradients and new weights out."""
    model, x = Model(layer_type).eval(), torch.randn(5, 4, N)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        value: Tensor = functional_call(model, weights, (x,)).square().mean()
        return value

    for _ in range(2):
        grads, value = grad_and_value(loss)(weights)
        weights = {name: w - 0.2 * grads[name] for name, w in weights.items()}
    found = {f"parameter {name}": w for name, w in weights.items()} | {
        f"gradient {name}": g for name, g in grads.items()
    }
    return found | {"value": value}


@program
def test_functional_call_with_each_of_stacked_weights(layer_type: Any) -> Found:
    """The weights of several models in one tensor each; every model runs on its slice of it."""
    models = [layer_type(N, HIDDEN) for _ in range(3)]
    stacked, _ = stack_module_state(models)
    outputs = []
    for i in range(3):
        output, h_n = functional_call(models[0], {name: p[i] for name, p in stacked.items()}, (torch.randn(5, 4, N),))
        outputs.append(output)
    (torch.stack(outputs).square().mean() + h_n.mean()).backward()
    with torch.no_grad():
        for p in stacked.values():
            p -= 0.2 * p.grad
        again = [
            functional_call(models[0], {n: p[i] for n, p in stacked.items()}, torch.ones(5, 4, N))[0] for i in range(3)
        ]
    found = {f"gradient {name}": p.grad for name, p in stacked.items()}
    return found | {"outputs": torch.stack(outputs), "again": torch.stack(again)}


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@program
def test_functionalize(layer_type: Any, remove: str) -> Found:
    rnn, x = make(layer_type, num_layers=2, bidirectional=True)
    x.requires_grad_()
    output, h_n = functionalize(lambda x: rnn(x * 2), remove=remove)(x)
    (output.square().mean() + h_n.mean()).backward()
    with torch.no_grad():
        plain = functionalize(lambda x: rnn(x)[0], remove=remove)(x)
    return trained(rnn, output=output, h_n=h_n, plain=plain, x=x.grad)


@program
def test_functionalize_a_cell(cell_type: Any) -> Found:
    cell, x = cell_type(N, HIDDEN), torch.randn(4, N)

    def steps(x: Tensor) -> Any:
        h = torch.zeros(4, HIDDEN)
        for _ in range(3):
            h.copy_(cell(x, h))
        return h

    with torch.no_grad():
        return {"h": functionalize(steps)(x)}


@program
def test_forward_mode(layer_type: Any) -> Found:
    rnn, x = make(layer_type, num_layers=2)
    output, tangent, *_ = jvp(lambda x: rnn(x)[0], (x,), (torch.randn_like(x),))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        pushed = forward_ad.unpack_dual(rnn(dual)[1]).tangent
    return {"output": output, "tangent": tangent, "pushed": pushed}


@program
def test_vector_jacobian_products_and_gradients(layer_type: Any) -> Found:
    rnn, x = make(layer_type, bidirectional=True)
    output, pull, *_ = vjp(lambda x, h: rnn(x, h)[0], x, torch.zeros(2, 4, HIDDEN))
    by_x, by_h = pull(torch.ones_like(output))
    slope = grad(lambda x: rnn(x)[0].square().sum())(x)
    return {"output": output, "by_x": by_x, "by_h": by_h, "slope": slope}


@pytest.mark.parametrize("vectorize", [False, True], ids=["one by one", "vectorize"])
@pytest.mark.parametrize("order", ["jacobian", "hessian"])
@program
def test_jacobian(layer_type: Any, order: str, vectorize: bool) -> Found:
    rnn, x = layer_type(2, 5, 2), torch.randn(3, 2, 2)
    if order == "hessian":
        found: Any = torch.autograd.functional.hessian(lambda x: rnn(x)[0].square().sum(), x, vectorize=vectorize)
    else:
        found = torch.autograd.functional.jacobian(lambda x: rnn(x)[1], x, vectorize=vectorize)
    return {"found": found}


@program
def test_jacobian_of_a_cell(cell_type: Any) -> Found:
    """How a state changes the next one, along a trajectory: its singular values show whether gradients survive."""
    cell, h, values = cell_type(N, 6), torch.zeros(2, 6), []
    for x in torch.randn(4, 2, N):
        jacobian: Any = torch.autograd.functional.jacobian(lambda h, x=x: cell(x, h).sum(0), h, vectorize=True)
        values.append(torch.linalg.svdvals(jacobian.permute(1, 0, 2)))
        h = cell(x, h).detach()
    return {"values": torch.stack(values), "h": h}


@program
def test_batched_gradients_of_one_graph(layer_type: Any) -> Found:
    rnn, x = make(layer_type, num_layers=2)
    h0 = torch.randn(2, 4, HIDDEN, requires_grad=True)
    output, h_n = rnn(x.requires_grad_(), h0)
    vectors = torch.randn(6, *output.shape), torch.randn(6, *h_n.shape)
    wanted = [x, h0, *rnn.parameters()]
    found = torch.autograd.grad((output, h_n), wanted, vectors, is_grads_batched=True, retain_graph=True)
    again = torch.autograd.grad((output, h_n), wanted, vectors, is_grads_batched=True, create_graph=True)
    second = torch.autograd.grad(torch.stack([g.square().sum() for g in again]).sum(), wanted, retain_graph=True)
    one = torch.autograd.grad((output, h_n), wanted, [v[2] for v in vectors])
    for many, single in zip(found, one, strict=True):
        # the same sums in another order
        torch.testing.assert_close(many[2], single, rtol=1e-4, atol=1e-5)
    return {f"gradient {i}": g for i, g in enumerate((*found, *second))}


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad], ids=["with gradients", "without"])
@program
def test_vmap_over_vector_jacobian_products(layer_type: Any, around: Any) -> Found:
    rnn, x = layer_type(2, 5), torch.randn(3, 2, 2)
    with around():
        by_jacrev: Any = jacrev(lambda x: rnn(x)[0])(x)
        output, pull, *_ = vjp(lambda x: rnn(x)[0], x)
        by_rows = vmap(pull)(torch.eye(output.numel()).view(-1, *output.shape))[0]
    # the same numbers in other shapes, by the same products in another order
    torch.testing.assert_close(by_jacrev.reshape(by_rows.shape), by_rows, rtol=1e-5, atol=1e-6)
    return {"jacobian": by_jacrev.detach()}


@program
def test_vmap_over_the_gradient_of_a_graph(layer_type: Any) -> Found:
    rnn, x = make(layer_type)
    output = rnn(x.requires_grad_())[0]
    vectors = torch.randn(3, *output.shape)
    found = vmap(lambda v: torch.autograd.grad(output, x, v, retain_graph=True)[0])(vectors)
    return {"found": found}


@program
def test_newton_step_by_conjugate_gradients(layer_type: Any) -> Found:
    """Hessian-vector products by differentiating twice, also of the parameters' gradients."""
    rnn, x = layer_type(N, 6), torch.randn(4, 3, N)
    parameters = list(rnn.parameters())
    loss = rnn(x)[0].square().mean()
    slopes = torch.autograd.grad(loss, parameters, create_graph=True)
    vectors = [torch.ones_like(p) for p in parameters]
    product = sum((s * v).sum() for s, v in zip(slopes, vectors, strict=True))
    hvp = torch.autograd.grad(product, parameters, retain_graph=True)
    product.backward()
    return trained(rnn, loss=loss) | {f"gradient hvp {i}": h for i, h in enumerate(hvp)}


@program
def test_gradient_through_a_custom_function(layer_type: Any) -> Found:
    """Its own backward pass calls the layer's: recomputation by hand."""

    class Recomputed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rnn: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
            ctx.rnn = rnn
            ctx.save_for_backward(x)
            with torch.no_grad():
                output: Tensor = rnn(x)[0]
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                output = ctx.rnn(x)[0]
            return None, *torch.autograd.grad(output, [x, *ctx.rnn.parameters()], grads[0])

    recomputed: Any = Recomputed.apply
    rnn, x = make(layer_type, num_layers=2)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.2)
    for _ in range(2):
        optimizer.zero_grad()
        output = recomputed(rnn, x.requires_grad_(), *rnn.parameters())
        output.square().mean().backward()
        optimizer.step()
    return trained(rnn, output=output, x=x.grad)


@program
def test_graph_by_make_fx(layer_type: Any) -> Found:
    rnn, x = make(layer_type)
    graph = make_fx(lambda x: rnn(x)[0])(x)
    other = torch.randn_like(x)
    # the graph does what the layer does
    assert torch.equal(graph(other), rnn(other)[0])
    return {"output": graph(other)}


@program
def test_graph_of_a_gradient_by_make_fx(layer_type: Any) -> Found:
    """By a function transform, and of a graph of autograd's that is there already."""
    rnn, x = make(layer_type)

    def slope(x: Tensor) -> Any:
        return grad(lambda x: rnn(x)[0].square().sum())(x)

    x.requires_grad_()
    output, other = rnn(x)[0], torch.randn_like(x)

    def pulled(v: Tensor, again: bool) -> Any:
        return torch.autograd.grad(output, x, v, retain_graph=True, create_graph=again)[0]

    recorded = make_fx(slope)(torch.randn_like(x))(other)
    torch.testing.assert_close(recorded, slope(other))
    found = {"recorded": recorded}
    for again in (False, True):
        vector = torch.randn_like(output)
        graph = make_fx(partial(pulled, again=again))(torch.ones_like(vector))
        found[f"pulled {again}"] = graph(vector).detach()
        torch.testing.assert_close(found[f"pulled {again}"], pulled(vector, again=False))
    return found


@program
def test_graph_by_symbolic_trace(layer_type: Any) -> Found:
    """The layer is a node of the model's graph, and its input is edited there."""
    model, x = Model(layer_type).eval(), torch.randn(5, 4, N)
    graph = torch.fx.symbolic_trace(model)
    assert torch.equal(graph(x), model(x))
    (node,) = [node for node in graph.graph.nodes if node.target == "rnn"]
    with graph.graph.inserting_before(node):
        node.replace_input_with(node.args[0], graph.graph.call_function(torch.neg, (node.args[0],)))
    graph.recompile()
    logits = graph(x)
    logits.square().mean().backward()
    return trained(model, logits=logits)


@program
def test_traced_and_trained(layer_type: Any) -> Found:
    """`torch.jit.trace`, as old programs do."""
    rnn, x = make(layer_type, num_layers=2)
    with warnings.catch_warnings():
        # of the sizes that a trace keeps
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(rnn, (x,))
    output, h_n = traced(x)
    (output.square().mean() + h_n.mean()).backward()
    return trained(rnn, output=output, h_n=h_n)


@program
def test_operations_are_counted(layer_type: Any) -> Found:
    rnn, x = make(layer_type)
    with FlopCounterMode(display=False) as counter:
        output, _ = rnn(x)
        output.sum().backward()
    # at least the products with the weights, forwards and twice backwards but for the input's gradient
    assert counter.get_total_flops() >= 2 * 20 * 2 * rnn.weight_hh_l0.numel()
    return trained(rnn, output=output)


@pytest.fixture(params=["flush denormal", "lower precision of products", "one thread"])
def setting(request: pytest.FixtureRequest, _threads: None) -> Iterator[None]:
    """A switch of torch's that programs set at their start."""
    before = torch.get_float32_matmul_precision()
    torch.set_flush_denormal(request.param == "flush denormal")
    torch.set_float32_matmul_precision("high" if request.param == "lower precision of products" else "highest")
    if request.param == "one thread":
        torch.set_num_threads(1)
    yield
    torch.set_flush_denormal(False)
    torch.set_float32_matmul_precision(before)


@program
def test_settings_of_torch(layer_type: Any, setting: None) -> Found:
    model, x = Model(layer_type), torch.randn(5, 4, N)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), torch.arange(20) % 2)
        loss.backward()
        optimizer.step()
    return trained(model, loss=loss)


def test_vmap_over_models_and_samples() -> None:
    """Better than `nn.GRU`, which cannot: an ensemble's training step and per-sample gradients in one call."""
    models, x = [MuFuRU(N, HIDDEN, 2) for _ in range(3)], torch.randn(5, 4, N)
    stacked, _ = stack_module_state(models)
    stacked = {name: p.detach() for name, p in stacked.items()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        value: Tensor = functional_call(models[0], weights, (x,))[0].square().mean()
        return value

    def samples(weights: dict[str, Tensor], x: Tensor) -> Any:
        return vmap(grad(loss), in_dims=(None, 1))(weights, x.unsqueeze(2))

    found = vmap(samples, in_dims=(0, None))(stacked, x)
    for i, model in enumerate(models):
        for j in range(4):
            model.zero_grad()
            model(x[:, j : j + 1])[0].square().mean().backward()
            for name, p in model.named_parameters():
                # the same derivative of the same numbers: float32 rounding
                torch.testing.assert_close(found[name][i, j], p.grad, rtol=1e-4, atol=1e-6)
