"""What of torch works with `nn.GRU` and with `MuFuRU`: each feature is tried on both, and its numbers are checked.

`python benchmarks/features.py` writes results/features.json, from which docs/generate.py makes its table.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.export import Dim
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import mufuru
from mufuru import MuFuRU

Make: TypeAlias = Callable[..., Any]
"""The class of the layer."""
RECORD = Path(__file__).parent / "results" / "features.json"
LAYERS: dict[str, Make] = {"nn.GRU": nn.GRU, "MuFuRU": MuFuRU}
FREE = {0: Dim("time"), 1: Dim("batch")}


def compile_fullgraph(make: Make) -> None:
    layer, x = make(3, 4), torch.randn(5, 2, 3)
    torch.compiler.reset()
    found = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0]
    assert_close(found, layer(x)[0])
    found.sum().backward()


def export_free_length(make: Make) -> None:
    layer = make(3, 4).eval()
    with torch.no_grad():
        program = torch.export.export(layer, (torch.randn(5, 2, 3),), dynamic_shapes={"input": FREE})
        x = torch.randn(9, 4, 3)
        assert_close(program.module()(x)[0], layer(x)[0])


def onnx_free_length(make: Make) -> None:
    """torch's own call for `nn.GRU`, mufuru's for `MuFuRU`."""
    import onnxruntime

    layer, example = make(3, 4).eval(), (torch.randn(5, 2, 3),)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "layer.onnx")
        if isinstance(layer, MuFuRU):
            mufuru.export.onnx(layer, path, example)
        else:
            torch.onnx.export(layer, example, path, dynamo=True, dynamic_shapes={"input": FREE}, verbose=False)
        x = torch.randn(9, 4, 3)
        found = onnxruntime.InferenceSession(path).run(None, {"input": x.numpy()})[0]
    assert_close(torch.from_numpy(found), layer(x)[0].detach(), rtol=0, atol=1e-5)


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


def double_backward(make: Make) -> None:
    layer, x = make(2, 3).double(), torch.randn(3, 2, 2).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,), fast_mode=True)


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
    """What an autocast layer before it gives, goes in; forward and backward stay near full precision."""
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
    "`torch.compile(fullgraph=True)`": compile_fullgraph,
    "`torch.export`, free batch and time": export_free_length,
    "ONNX, free batch and time": onnx_free_length,
    "`functional_call`": functional,
    "`vmap` over models": vmap_over_models,
    "`vmap` over batches": vmap_over_batches,
    "per-sample gradients, `vmap(grad)`": per_sample_gradients,
    "forward mode, `jvp`": forward_mode,
    "`jacrev`": jacobian_by_reverse,
    "double backward": double_backward,
    "`torch.utils.checkpoint`": checkpointed,
    "CPU autocast, bfloat16": lambda make: autocast(make, torch.bfloat16),
    "CPU autocast, float16": lambda make: autocast(make, torch.float16),
    "`parametrizations.weight_norm`": weight_norm,
    "`torch.nn.utils.prune`": pruned,
    "forward and backward hooks": hooks,
    "a sequence of length 0": empty_sequences,
}


def attempt(feature: str, layer: str) -> str:
    """Empty if it works, else the kind of error and the beginning of its message."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FEATURES[feature](LAYERS[layer])
    except Exception as error:
        # what stopped it is often wrapped by torch's own errors
        words = str(error).split("\n\n")[0].replace("\n", " ").replace("|", "/").split()
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
    features = {feature: {layer: attempt(feature, layer) for layer in LAYERS} for feature in FEATURES}
    record = {"torch": {"version": torch.__version__.split("+")[0]}, "features": features}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
