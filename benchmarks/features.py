"""Features of torch that work with `nn.GRU` and with `MuFuRU`: each is tried on both, and its numbers are checked.

`python benchmarks/features.py` writes results/features.json, from which docs/generate.py makes its table;
`python benchmarks/features.py "double backward" MuFuRU` tries one. Each has a process of its own, which may die.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.export import Dim
from torch.func import functional_call, functionalize, grad, jacrev, jvp, stack_module_state, vmap
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from mufuru import MuFuRU

Make: TypeAlias = Callable[..., Any]
"""The class of the layer."""
RECORD = Path(__file__).parent / "results" / "features.json"
LAYERS: dict[str, Make] = {"nn.GRU": nn.GRU, "MuFuRU": MuFuRU}
FREE = {0: Dim("time"), 1: Dim("batch")}


class Tagger(nn.Module):
    """The layer as a part of a model."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.layer(x)
        tags: Tensor = self.out(output)
        return tags


def gradients(layer: nn.Module, output: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output.square().sum(), (x, *layer.parameters()))


def compiled(make: Make, fullgraph: bool) -> None:
    """With the default backend, two layers, both directions: output and every gradient as in eager mode."""
    own = {"ops": ("keep", "replace", lambda s, v: s * v.sin())}
    several: list[dict[str, Any]] = [{}, {"kernel": "reference"}, own] if make is MuFuRU else [{}]
    for options in several:
        layer, x = make(3, 4, 2, bidirectional=True, **options), torch.randn(5, 2, 3, requires_grad=True)
        found, wanted = torch.compile(layer, fullgraph=fullgraph)(x)[0], layer(x)[0]
        # sums in another order: float32 rounding
        assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert_close(gradients(layer, found, x), gradients(layer, wanted, x), rtol=1e-4, atol=1e-5)


def export_free_length(make: Make) -> None:
    layer = make(3, 4).eval()
    with torch.no_grad():
        program = torch.export.export(layer, (torch.randn(5, 2, 3),), dynamic_shapes={"input": FREE})
        x = torch.randn(9, 4, 3)
        assert_close(program.module()(x)[0], layer(x)[0])


def onnx(make: Make, steps: int, batch: int, free: Any) -> None:
    """torch's own call, and what onnxruntime makes of these sizes."""
    import onnxruntime

    layer, x = make(3, 4).eval(), torch.randn(steps, batch, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "layer.onnx")
        torch.onnx.export(layer, (torch.randn(5, 2, 3),), path, dynamo=True, dynamic_shapes=free, verbose=False)
        found = onnxruntime.InferenceSession(path).run(None, {"input": x.numpy()})[0]
    assert_close(torch.from_numpy(found), layer(x)[0].detach(), rtol=0, atol=1e-5)


def scripted(make: Make) -> None:
    model, x = Tagger(make(3, 4)), torch.randn(5, 2, 3)
    assert_close(torch.jit.script(model)(x), model(x))


def traced(make: Make) -> None:
    model, x = Tagger(make(3, 4)), torch.randn(7, 3, 3)
    assert_close(torch.jit.trace(model, (torch.randn(5, 2, 3),))(x), model(x))


def symbolic(make: Make) -> None:
    model, x = Tagger(make(3, 4)), torch.randn(5, 2, 3)
    assert_close(torch.fx.symbolic_trace(model)(x), model(x))


def functional(make: Make) -> None:
    layer, other, x = make(3, 4), make(3, 4), torch.randn(5, 2, 3)
    assert_close(functional_call(layer, dict(other.named_parameters()), (x,))[0], other(x)[0])


def vmap_over_models(make: Make) -> None:
    layers, x = [make(3, 4) for _ in range(3)], torch.randn(5, 2, 3)
    parameters, _ = stack_module_state(layers)
    found = vmap(lambda p: functional_call(layers[0], p, (x,))[0])(parameters)
    assert_close(found, torch.stack([layer(x)[0] for layer in layers]))


def vmap_over_batches(make: Make) -> None:
    layer, x = make(3, 4, 2, bidirectional=True), torch.randn(4, 5, 2, 3)
    assert_close(vmap(lambda one: layer(one)[0])(x), torch.stack([layer(one)[0] for one in x]))


def per_sample_gradients(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 6, 3)
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, parameters, (one.unsqueeze(1),))[0]
        return output.square().sum()

    found = vmap(grad(loss), in_dims=(None, 1))(parameters, x)
    for i in range(6):
        assert_close({name: g[i] for name, g in found.items()}, grad(loss)(parameters, x[:, i]), rtol=1e-4, atol=1e-5)


def forward_mode(make: Make) -> None:
    layer, x, t = make(3, 4).double(), torch.randn(5, 2, 3).double(), torch.randn(5, 2, 3).double()
    found = jvp(lambda x: layer(x)[0], (x,), (t,))[1]
    # against differences: their error is of the order of the step squared
    assert_close(found, (layer(x + 1e-4 * t)[0] - layer(x - 1e-4 * t)[0]) / 2e-4, rtol=0, atol=1e-6)


def jacobian_by_reverse(make: Make) -> None:
    layer, x = make(2, 3), torch.randn(3, 1, 2)
    wanted: Any = jacobian(lambda x: layer(x)[0], x)
    assert_close(jacrev(lambda x: layer(x)[0])(x), wanted)
    with torch.no_grad():
        assert_close(jacrev(lambda x: layer(x)[0])(x), wanted)


def jacobian_at_once(make: Make) -> None:
    layer, x = make(2, 3), torch.randn(3, 1, 2)
    wanted: Any = jacobian(lambda x: layer(x)[0], x)
    assert_close(jacobian(lambda x: layer(x)[0], x, vectorize=True), wanted)


def batched_gradients(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3, requires_grad=True)
    output = layer(x)[0]
    several = torch.randn(3, *output.shape)
    (found,) = torch.autograd.grad(output, x, several, is_grads_batched=True, retain_graph=True)
    assert_close(found, torch.stack([torch.autograd.grad(output, x, one, retain_graph=True)[0] for one in several]))


def functionalized(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)

    def loss(x: Tensor) -> Tensor:
        output: Tensor = layer(x)[0]
        return output.square().sum()

    assert_close(functionalize(loss)(x), loss(x))
    assert_close(functionalize(grad(loss))(x), grad(loss)(x))


def double_backward(make: Make) -> None:
    layer, x = make(2, 3).double(), torch.randn(3, 2, 2).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,), fast_mode=True)


def gradient_of_gradient(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        output: Tensor = layer(x)[0]
        return output.square().sum()

    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (wanted,) = torch.autograd.grad(slope.square().sum(), x)
    assert_close(grad(lambda x: grad(loss)(x).square().sum())(x.detach()), wanted)


def loaded(make: Make) -> None:
    layer, file = make(3, 4), io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    x = torch.randn(5, 2, 3)
    assert_close(torch.load(file)(x), layer(x))


def checkpointed(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3, requires_grad=True)
    (wanted,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    for reentrant in (False, True):
        output, _ = checkpoint(layer, x, use_reentrant=reentrant)
        x.grad = None
        output.square().sum().backward()
        assert x.grad is not None
        assert_close(x.grad, wanted)


def autocast(make: Make, dtype: torch.dtype) -> None:
    """The output of an autocast layer is its input; forward and backward stay near full precision."""
    first, layer, x = nn.Linear(3, 3), make(3, 4), torch.randn(5, 2, 3)
    with torch.autocast("cpu", dtype):
        output = layer(first(x))[0]
    # the input comes rounded to 8 bits (bfloat16), and so may what is inside
    assert_close(output.float(), layer(first(x))[0], rtol=0, atol=2e-2)
    output.float().sum().backward()
    assert first.weight.grad is not None
    assert bool(first.weight.grad.isfinite().all())


def weight_norm(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    before = layer(x)[0]
    parametrizations.weight_norm(layer, "weight_hh_l0")
    assert_close(layer(x)[0], before)
    layer(x)[0].sum().backward()
    assert layer.parametrizations.weight_hh_l0.original0.grad is not None
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original0.mul_(2)
    assert (layer(x)[0] - before).abs().max() > 1e-4


def pruned(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    prune.l1_unstructured(layer, "weight_hh_l0", 0.5)
    layer(x)[0].sum().backward()
    assert not layer.weight_hh_l0_orig.grad[layer.weight_hh_l0_mask == 0].any()
    plain = make(3, 4)
    plain.load_state_dict({name: getattr(layer, name) for name in plain.state_dict()})
    assert_close(layer(x)[0], plain(x)[0])
    prune.remove(layer, "weight_hh_l0")
    assert_close(layer(x)[0], plain(x)[0])


def swapped_by_conversion(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    torch.__future__.set_swap_module_params_on_conversion(True)
    with torch.no_grad():
        before, parameter = layer(x)[0], layer.weight_hh_l0
    layer.to(torch.float64)
    assert layer.weight_hh_l0 is parameter
    assert_close(layer(x.double())[0].float(), before)


def swapped(make: Make) -> None:
    layer, other, x = make(3, 4), make(3, 4), torch.randn(5, 2, 3)
    with torch.no_grad():
        layer(x), other(x)
        for ours, theirs in zip(layer.parameters(), copy.deepcopy(other).parameters(), strict=True):
            torch.utils.swap_tensors(ours, theirs)
        assert_close(layer(x)[0], other(x)[0])


def odd_tensors(make: Make, odd: Callable[[Tensor], Tensor]) -> None:
    """As input, as state and as gradient."""
    layer, x, h = make(3, 4), torch.randn(5, 2, 3), torch.randn(1, 2, 4)
    for given, state in ((odd(x), h), (x, odd(h))):
        assert_close(layer(given, state)[0], layer(torch.zeros_like(x) + given, torch.zeros_like(h) + state)[0])
    x.requires_grad_()
    output = layer(x)[0]
    incoming = odd(torch.randn_like(output))
    (found,) = torch.autograd.grad(output, x, incoming, retain_graph=True)
    assert_close(found, torch.autograd.grad(output, x, torch.zeros_like(output) + incoming)[0])


def freed_storage(make: Make) -> None:
    """Sharded training frees parameters so: to read them is an error, not the end of the process."""
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    freed = copy.deepcopy(layer), x.clone()
    freed[0].weight_hh_l0.data.untyped_storage().resize_(0)
    freed[1].untyped_storage().resize_(0)
    for module, given in ((freed[0], x), (layer, freed[1])):
        try:
            module(given)
        except RuntimeError:
            continue
        raise AssertionError("memory that was freed has been read")


def spread(make: Make, spreader: Callable[[nn.Module], Any]) -> None:
    """Two processes train on half of the batch each: the gradients are those of the whole."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_one_of_two, (folder, make, spreader), nprocs=2, start_method="spawn")


def _one_of_two(rank: int, folder: str, make: Make, spreader: Callable[[nn.Module], Any]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    layer, x = make(3, 4, 2), torch.randn(5, 4, 3)
    whole = copy.deepcopy(layer)
    whole(x)[0].square().mean().backward()
    model = spreader(layer)
    model(x[:, 2 * rank : 2 * rank + 2])[0].square().mean().backward()
    for found, wanted in zip(layer.parameters(), whole.parameters(), strict=True):
        full = getattr(found.grad, "full_tensor", lambda found=found: found.grad)
        assert_close(full(), wanted.grad)
    dist.barrier()
    # not destroy_process_group: it may hold Python's lock and wait for its thread, which waits for that lock
    os._exit(0)


def _sharded(layer: nn.Module) -> Any:
    return fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))


def hooks(make: Make) -> None:
    layer, x, seen = make(3, 4), torch.randn(5, 2, 3, requires_grad=True), []
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_: seen.append("after"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    layer(x)[0].sum().backward()
    assert seen == ["before", "after", "backward"]


def empty_sequences(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    if isinstance(layer, MuFuRU):
        _, h_n = layer(x, lengths=[5, 0])
    else:
        _, h_n = layer(nn.utils.rnn.pack_padded_sequence(x, [5, 0]))
    assert not h_n[0, 1].any()


FEATURES: dict[str, Callable[[Make], None]] = {
    "`torch.compile`, all gradients": lambda make: compiled(make, fullgraph=False),
    "`torch.compile(fullgraph=True)`": lambda make: compiled(make, fullgraph=True),
    "`torch.export`, free batch and time": export_free_length,
    "`torch.onnx.export(dynamo=True)`": lambda make: onnx(make, 5, 2, None),
    "`torch.onnx.export`, free batch and time": lambda make: onnx(make, 9, 4, {"input": FREE}),
    "`torch.jit.trace`": traced,
    "`torch.jit.script`": scripted,
    "`torch.fx.symbolic_trace`": symbolic,
    "`torch.load` of a saved layer": loaded,
    "`functional_call`": functional,
    "`functionalize`": functionalized,
    "`vmap` over models": vmap_over_models,
    "`vmap` over batches": vmap_over_batches,
    "per-sample gradients, `vmap(grad)`": per_sample_gradients,
    "forward mode, `jvp`": forward_mode,
    "`jacrev`": jacobian_by_reverse,
    "`jacobian(vectorize=True)`": jacobian_at_once,
    "`grad(is_grads_batched=True)`": batched_gradients,
    "double backward": double_backward,
    "`grad` of `grad`": gradient_of_gradient,
    "`torch.utils.checkpoint`": checkpointed,
    "`DistributedDataParallel`": lambda make: spread(make, DistributedDataParallel),
    "FSDP2, `fully_shard`": lambda make: spread(make, _sharded),
    "CPU autocast, bfloat16": lambda make: autocast(make, torch.bfloat16),
    "CPU autocast, float16": lambda make: autocast(make, torch.float16),
    "`parametrizations.weight_norm`": weight_norm,
    "`torch.nn.utils.prune`": pruned,
    "`set_swap_module_params_on_conversion`": swapped_by_conversion,
    "`torch.utils.swap_tensors`": swapped,
    "forward and backward hooks": hooks,
    "negative views": lambda make: odd_tensors(make, torch._neg_view),
    "zero tensors without memory": lambda make: odd_tensors(make, lambda like: torch._efficientzerotensor(like.shape)),
    "freed memory is refused": freed_storage,
    "a sequence of length 0": empty_sequences,
}
PATIENCE = 600
"""Seconds after which a feature counts as hanging; compilers take minutes on a busy machine."""
SPREAD = ("`DistributedDataParallel`", "FSDP2, `fully_shard`")
"""Features that start processes of their own."""


def attempt(feature: str, layer: str) -> str:
    """Empty if it works, else the kind of error and the beginning of its message, found in a process of its own."""
    command = [sys.executable, __file__, feature, layer]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} s"
    if done.returncode < 0:
        return f"the process ended with {signal.Signals(-done.returncode).name}"
    return done.stdout.rstrip().split("\n")[-1] if done.returncode else ""


def attempt_here(feature: str, layer: str) -> str:
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FEATURES[feature](LAYERS[layer])
    except Exception as error:
        # what stopped it is often wrapped by torch's own errors
        text = re.sub(r"\x1b\[[\d;]*m", "", str(error).strip())
        text = re.sub(r'File ".*/', 'File "', text)
        words = text.split("\n\n")[0].replace("\n", " ").replace("|", "/").split()
        return f"{type(error).__name__}: {' '.join(words[:14])}"
    return ""


def table(record: dict[str, Any]) -> str:
    """The record as Markdown."""
    lines = [f"| feature | `nn.GRU` {record['torch']['version']} | `MuFuRU` |", "|---|---|---|"]
    for feature, found in record["features"].items():
        cells = [_cell(found[layer]) for layer in LAYERS]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(error: Any) -> str:
    return f"no: `{error.replace('`', '')}`" if error else "yes"


def main() -> None:
    if sys.argv[1:]:
        error = attempt_here(*sys.argv[1:])
        print(error or "works")
        sys.exit(1 if error else 0)
    features = {feature: {layer: attempt(feature, layer) for layer in LAYERS} for feature in FEATURES}
    record = {"torch": {"version": torch.__version__.split("+")[0]}, "features": features}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
