"""A program zoo: what programs do to a module and its tensors: parametrizations, hooks, places, kinds of tensors."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import Found, program, trained

N, HIDDEN = 3, 20


def fit(rnn: nn.Module, steps: int = 2) -> Tensor:
    """Train it a little on any numbers."""
    optimizer = torch.optim.SGD([p for p in rnn.parameters() if p.requires_grad], lr=0.2)
    for _ in range(steps):
        output, h_n = rnn(torch.randn(5, 4, N))
        optimizer.zero_grad()
        (output.square().mean() + h_n.mean()).backward()
        optimizer.step()
    detached: Tensor = output.detach()
    return detached


def run(rnn: nn.Module) -> Tensor:
    """Without gradients, on numbers that are always the same."""
    with torch.no_grad():
        output: Tensor = rnn(torch.linspace(-1, 1, 5 * 4 * N).view(5, 4, N))[0]
    return output


class LowRank(nn.Module):
    """A frozen weight and a small product beside it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(len(weight), 2)), nn.Parameter(torch.zeros(2, weight.size(1)))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.a @ self.b


@program
def test_low_rank_adapters(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN, 2).requires_grad_(False)
    before = run(rnn)
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_hh_l1"):
        parametrize.register_parametrization(rnn, name, LowRank(getattr(rnn, name)))
    assert torch.equal(run(rnn), before)
    output = fit(rnn, 3)
    after = run(rnn)
    gradients = trained(rnn)
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_hh_l1"):
        parametrize.remove_parametrizations(rnn, name)
    merged = run(rnn)
    return gradients | trained(rnn, output=output, before=before, after=after, merged=merged)


@program
def test_parametrization_is_cached(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN)
    parametrize.register_parametrization(rnn, "weight_hh_l0", LowRank(rnn.weight_hh_l0))
    optimizer, x = torch.optim.SGD(rnn.parameters(), lr=0.2), torch.randn(5, 4, N)
    for _ in range(2):
        optimizer.zero_grad()
        with parametrize.cached():
            output, h_n = rnn(x)
            output, h_n = rnn(x, h_n)
            output.square().mean().backward()
        optimizer.step()
    return trained(rnn, output=output, after=run(rnn))


NORMS: dict[str, Any] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


@pytest.mark.parametrize("norm", NORMS)
@program
def test_normed_weights(layer_type: Any, norm: str) -> Found:
    rnn = layer_type(N, HIDDEN, bidirectional=True)
    NORMS[norm](rnn, "weight_hh_l0")
    NORMS[norm](rnn, "weight_ih_l0_reverse")
    output = fit(rnn)
    rnn.eval()
    return trained(rnn, output=output, after=run(rnn), again=run(rnn))


@program
def test_pruned_by_rounds(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN)
    for amount in (0.3, 0.5):
        prune.l1_unstructured(rnn, "weight_hh_l0", amount)
        prune.random_structured(rnn, "weight_ih_l0", amount=0.25, dim=0)
        run(rnn)
        output = fit(rnn)
    masked = trained(rnn, output=output)
    before = run(rnn)
    prune.remove(rnn, "weight_hh_l0")
    prune.remove(rnn, "weight_ih_l0")
    assert torch.equal(run(rnn), before)
    return masked | trained(rnn, before=before, after=fit(rnn))


@program
def test_pruned_by_hand(layer_type: Any) -> Found:
    """A mask kept on the weights through `.data` after each step."""
    rnn = layer_type(N, HIDDEN)
    mask = torch.rand_like(rnn.weight_hh_l0) > 0.5
    seen = [run(rnn)]
    for _ in range(2):
        rnn.weight_hh_l0.data[~mask] = 0
        seen.append(run(rnn))
        fit(rnn, 1)
    return trained(rnn, seen=torch.stack(seen))


@program
def test_hooks_replace_what_goes_in_and_out(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN)
    rnn.register_forward_pre_hook(lambda module, args, kwargs: ((2 * args[0], *args[1:]), kwargs), with_kwargs=True)
    rnn.register_forward_hook(lambda module, args, result: (F.layer_norm(result[0], (HIDDEN,)), result[1].tanh()))
    rnn.register_full_backward_pre_hook(lambda module, grads: (grads[0].clamp(-0.01, 0.01), *grads[1:]))
    rnn.register_full_backward_hook(lambda module, grads, _: (grads[0] * 0.5, *grads[1:]))
    x = torch.randn(5, 4, N, requires_grad=True)
    h0 = torch.zeros(1, 4, HIDDEN, requires_grad=True)
    output, h_n = rnn(x, h0)
    (output.sin().sum() + h_n.sum()).backward()
    return trained(rnn, output=output, h_n=h_n, x=x.grad, h0=h0.grad)


@program
def test_hook_replaces_the_result_by_a_tensor(layer_type: Any) -> Found:
    """So that the layer stands in an `nn.Sequential`."""
    rnn = layer_type(N, HIDDEN, batch_first=True)
    rnn.register_forward_hook(lambda module, args, result: result[0][:, -1])
    model = nn.Sequential(nn.Linear(N, N), nn.ReLU(inplace=True), rnn, nn.ReLU(inplace=True), nn.Linear(HIDDEN, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(2):
        logits = model(torch.randn(4, 5, N))
        optimizer.zero_grad()
        F.cross_entropy(logits, torch.tensor([0, 1, 1, 0])).backward()
        optimizer.step()
    return trained(model, logits=logits)


@program
def test_hooks_of_all_modules(layer_type: Any) -> Found:
    """Activations and their gradients gathered for a dashboard, while anomalies are detected."""
    seen: dict[str, Tensor] = {}

    def watch(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(module, layer_type):
            result[0].register_hook(lambda grad: seen.update(gradient=grad))
            seen.update(output=result[0].detach(), state=result[1].detach())

    handle = nn.modules.module.register_module_forward_hook(watch)
    rnn = layer_type(N, HIDDEN, 2)
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        output = fit(rnn)
    handle.remove()
    return trained(rnn, last=output, **{f"seen {name}": tensor for name, tensor in seen.items()})


@program
def test_saliency_retains_gradients(layer_type: Any) -> Found:
    rnn, x = layer_type(N, HIDDEN, 2), torch.randn(5, 4, N, requires_grad=True)
    output, h_n = rnn(x)
    output.retain_grad()
    h_n.retain_grad()
    output[-1].max(-1).values.sum().backward(retain_graph=True)
    unused = h_n.grad
    (h_n[0].sum() + output[0].sum()).backward()
    return trained(rnn, x=x.grad, output=output.grad, h_n=h_n.grad, unused=unused)


@program
def test_activations_are_kept_elsewhere(layer_type: Any) -> Found:
    """Offloaded to the host, and packed in half precision: the backward pass gets other tensors than it saved."""
    rnn, x = layer_type(N, HIDDEN, 2, bidirectional=True), torch.randn(5, 4, N)
    with torch.autograd.graph.save_on_cpu():
        rnn(x)[0].square().mean().backward()

    def pack(tensor: Tensor) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    def unpack(tensor: Any) -> Tensor:
        kept: Tensor = tensor.float() if tensor.is_floating_point() else tensor
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        output, h_n = rnn(x)
    (output.square().mean() + h_n.mean()).backward()
    return trained(rnn, output=output, h_n=h_n)


@program
def test_meta_and_back(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN, 2)
    weights, before = copy.deepcopy(rnn.state_dict()), run(rnn)
    rnn.to("meta")
    shape = rnn(torch.empty(5, 4, N, device="meta"))[0].shape
    rnn.to_empty(device="cpu")
    rnn.load_state_dict(weights)
    assert torch.equal(run(rnn), before)
    return trained(rnn, shape=shape, output=fit(rnn), after=run(rnn))


@pytest.fixture(params=["swap", "overwrite"])
def conversion(request: pytest.FixtureRequest) -> Iterator[str]:
    """One of torch's other ways of converting a module's parameters."""
    future: Any = torch.__future__
    setters = {
        "swap": future.set_swap_module_params_on_conversion,
        "overwrite": future.set_overwrite_module_params_on_conversion,
    }
    setters[request.param](True)
    yield request.param
    setters[request.param](False)


@program
def test_parameters_are_swapped_or_overwritten_on_conversion(layer_type: Any, conversion: str) -> Found:
    rnn = layer_type(N, HIDDEN)
    before = run(rnn)
    if conversion == "swap":
        names = dict(rnn.named_parameters())
        rnn.double().float()
        assert all(parameter is names[name] for name, parameter in rnn.named_parameters())
    else:
        rnn.double().float()
    assert torch.equal(run(rnn), before)
    output = fit(rnn)
    return trained(rnn, output=output, after=run(rnn))


class Named(Tensor):
    """Carries a name through whatever is done to it."""

    name = ""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inherited: Any = super().__torch_function__
        result = inherited(func, types, args, kwargs or {})
        if isinstance(result, Named):
            result.name = next((arg.name for arg in args if isinstance(arg, Named)), "")
        return result


@pytest.mark.parametrize("place", ["input", "state", "both"])
@program
def test_subclass_tensors_go_in(layer_type: Any, place: str) -> Found:
    rnn, x, h0 = layer_type(N, HIDDEN, 2), torch.randn(5, 4, N), torch.randn(2, 4, HIDDEN)
    given = [t.as_subclass(Named) if place in (name, "both") else t for name, t in (("input", x), ("state", h0))]
    output, h_n = rnn(*given)
    (output.square().mean() + h_n.mean()).backward()
    with torch.no_grad():
        plain = rnn(*given)[0]
    plain_kind = type(plain).__name__
    torch.testing.assert_close(plain.as_subclass(Tensor), rnn(x, h0)[0].detach())
    # torch.equal of a subclass gives what its own rules say: numbers are compared as plain tensors
    kinds = [type(output).__name__, type(h_n).__name__, plain_kind]
    return trained(rnn, kinds=str(kinds), output=output.as_subclass(Tensor), h_n=h_n.as_subclass(Tensor))


class Marked(nn.Parameter):
    """A parameter of a subclass, as libraries use them to mark how it is to be treated."""


@pytest.mark.parametrize("place", ["input", "state", "weights"])
@program
def test_wrapped_tensors(layer_type: Any, place: str) -> Found:
    """Tensors without memory of their own: each operation is done to the two that they hold."""
    rnn, x, h0 = layer_type(N, HIDDEN, 2), torch.randn(5, 4, N), torch.randn(2, 4, HIDDEN)
    if place == "weights":
        for name, parameter in list(rnn.named_parameters()):
            setattr(rnn, name, nn.Parameter(TwoTensor(parameter.detach(), parameter.detach() / 2)))
    given = [TwoTensor(t, t / 2) if place == name else t for name, t in (("input", x), ("state", h0))]
    output, h_n = rnn(*given)
    (output.square().mean() + h_n.mean()).backward()
    with torch.no_grad():
        plain: Any = rnn(*given)[0]
    both = {"a": plain.a, "b": plain.b, "h_n a": h_n.a, "h_n b": h_n.b}
    grads = {name: getattr(parameter.grad, name[-1]) for name, parameter in _twice(rnn)}
    return both | grads


def _twice(rnn: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, parameter in rnn.named_parameters():
        yield f"gradient {name} a", parameter
        yield f"gradient {name} b", parameter


@program
def test_subclass_parameters(layer_type: Any) -> Found:
    rnn = layer_type(N, HIDDEN)
    rnn.weight_hh_l0 = Marked(rnn.weight_hh_l0.data)
    rnn.bias_ih_l0 = nn.UninitializedParameter()
    rnn.bias_ih_l0.materialize((len(rnn.bias_hh_l0),))
    nn.init.zeros_(rnn.bias_ih_l0)
    output = fit(rnn)
    assert isinstance(rnn.weight_hh_l0, Marked)
    return trained(rnn, output=output, after=run(rnn))


class Counted(TorchDispatchMode):
    """Sees every operation below autograd."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


class Passed(TorchFunctionMode):
    """Sees every call of torch's functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Counted, Passed, lambda: torch.device("cpu")], ids=["dispatch", "function", "device"])
@program
def test_trained_under_a_mode(layer_type: Any, mode: Any) -> Found:
    rnn = layer_type(N, HIDDEN, 2, bidirectional=True)
    with mode():
        output = fit(rnn)
        plain = run(rnn)
    assert torch.equal(run(rnn), plain)
    return trained(rnn, output=output, plain=plain)


@program
def test_frees_its_memory(layer_type: Any) -> Found:
    """After inference and training nothing keeps a deleted model's weights."""
    rnn = layer_type(N, HIDDEN, 2)
    output, after = fit(rnn), run(rnn)
    kept = [weakref.ref(parameter) for parameter in rnn.parameters()]
    del rnn
    assert not any(reference() is not None for reference in kept)
    return {"output": output, "after": after}


@program
def test_ensemble_of_copies(layer_type: Any) -> Found:
    """Copies made after inference, each with weights of its own, asked in turns."""
    first = layer_type(N, HIDDEN)
    run(first)
    models = [first, copy.deepcopy(first), copy.copy(copy.deepcopy(first))]
    models[1].load_state_dict(layer_type(N, HIDDEN).state_dict())
    models[2].reset_parameters()
    found = [run(model) for _ in range(2) for model in models]
    fit(models[1])
    found += [run(model) for model in models]
    return trained(*models, found=torch.stack(found))


@program
def test_weights_go_from_model_to_model(layer_type: Any) -> Found:
    """A parameter is replaced, its memory is replaced, and two layers exchange theirs."""
    a, b = layer_type(N, HIDDEN), layer_type(N, HIDDEN)
    found = [run(a), run(b)]
    a.weight_hh_l0, b.weight_hh_l0 = b.weight_hh_l0, a.weight_hh_l0
    found += [run(a), run(b)]
    a.weight_ih_l0.data, b.weight_ih_l0.data = b.weight_ih_l0.data, a.weight_ih_l0.data
    found += [run(a), run(b)]
    a.bias_hh_l0 = nn.Parameter(a.bias_hh_l0.detach() + 1)
    found += [run(a), run(b)]
    return trained(a, b, found=torch.stack(found), output=fit(a), other=fit(b))


@program
def test_orthogonal_start_and_reset(layer_type: Any) -> Found:
    """First weights as recipes give them, by the parameters' names."""
    model = nn.ModuleList([layer_type(N, HIDDEN), layer_type(N, HIDDEN, bias=False)])

    def start(module: nn.Module) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            if "weight_hh" in name:
                nn.init.orthogonal_(parameter)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)

    before = run(model[0])
    model.apply(start)
    return trained(model, before=before, output=fit(model[0]), other=fit(model[1]))
