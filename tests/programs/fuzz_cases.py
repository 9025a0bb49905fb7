"""A case of the fuzz: options, sizes, kinds of tensors and a mode, all drawn from one number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from fuzz_tensors import ANY, FOREIGN, GONE, KINDS, READABLE, VALUES
from torch import Tensor, nn

from mufuru import MuFuRU, MuFuRUCell
from mufuru.ops import names as names_of_ops

Shapes = dict[str, tuple[int, ...]]
MODES = {
    "grad": 30, "no_grad": 10, "inference_mode": 8, "edited weights": 6, "batched gradients": 8, "double backward": 6,
    "autocast": 8, "func.grad": 8, "vmap": 8, "vmap of grad": 5, "vmap of vjp": 5, "jvp": 2, "functionalize": 3,
    "exchanged weights": 4,
}  # fmt: skip
"""By their share of the cases."""
TRANSFORMS = ("func.grad", "vmap", "vmap of grad", "vmap of vjp", "jvp")
MAPPED = 2
"""The size of a dimension that is mapped over."""
SUFFIX = " k"
"""End of the name of the controller's state, which stands beside the other one."""


@dataclass(frozen=True)
class Case:
    """All that decides what happens; the numbers come from the generator with the case's number as its seed."""

    number: int
    cell: bool
    sizes: tuple[int, int]
    options: dict[str, Any]
    training: bool
    dtype: torch.dtype
    form: str
    """`padded`, `unbatched`, `lengths` or `packed`."""
    batch: int
    lengths: tuple[int, ...]
    """Lengths of the sequences, in the order of a packed batch; the longest is the number of steps."""
    hx: bool
    mode: str
    threads: int
    shapes: Shapes = field(default_factory=dict)
    """Shapes of the tensors, in order: input, state, parameters, incoming gradients."""
    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    """The tensors that a program differentiates by; a function transform maps over them."""
    wanted: tuple[str, ...] = ()
    """Those of them that can require a gradient."""
    parameters: bool = False
    """Whether the weights are `nn.Parameter`s."""
    resets: bool = False
    layout: str = ""
    """`flat`: the parameters are parts of one tensor; `tied`: those of one shape are one tensor."""

    @property
    def steps(self) -> int:
        return max(self.lengths, default=0)

    @property
    def mixed(self) -> bool:
        """Whether tensors have several dtypes. Autocast brings together those of floating point."""
        autocast = self.mode == "autocast"
        return any(dtype != self.dtype and not (autocast and dtype.is_floating_point) for dtype in self.dtypes.values())

    @property
    def position(self) -> int:
        """Place of the dimension that `vmap` maps over."""
        return -(self.number % 2)

    def mapped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape, MAPPED) if self.position else (MAPPED, *shape)

    def module(self) -> nn.Module:
        made: nn.Module = (MuFuRUCell if self.cell else MuFuRU)(*self.sizes, **self.options)
        return made.train(self.training)

    def kinds_among(self, kinds: dict[str, Any]) -> bool:
        return any(kind in kinds for kind in self.kinds.values())

    def __str__(self) -> str:
        """What is not the ordinary thing, in one line."""
        options = {name: [op if isinstance(op, str) else op.__name__ for op in value] if name == "ops" else value
                   for name, value in self.options.items()}  # fmt: skip
        unusual = {name: {key: str(value).removeprefix("torch.") for key, value in found.items()} for name in
                   ("kinds", "values", "dtypes") if (found := getattr(self, name))}  # fmt: skip
        arguments = ", ".join([*map(str, self.sizes), *(f"{name}={value!r}" for name, value in options.items())])
        parts = [f"{'MuFuRUCell' if self.cell else 'MuFuRU'}({arguments}){'' if self.training else '.eval()'}",
                 self.mode, str(self.dtype).removeprefix("torch."), f"{self.form} lengths {list(self.lengths)}",
                 "with hx" if self.hx else "without hx", f"{self.threads} threads", f"by {self.chosen}",
                 *(f"{name} {value}" for name, value in unusual.items()), *filter(None, [self.layout])]  # fmt: skip
        return "; ".join(parts + ["resets"] * self.resets + ["nn.Parameter"] * self.parameters)


def wave(s: Tensor, v: Tensor) -> Tensor:
    return s * v.sin()


def centred(s: Tensor, v: Tensor) -> Tensor:
    """Not element-wise: the native kernel leaves it to the reference."""
    return v - v.mean(-1, keepdim=True)


def negated(s: Tensor, v: Tensor) -> Tensor:
    return torch._neg_view(v)


def minus(s: Tensor, v: Tensor) -> Tensor:
    return -v


def nothing(s: Tensor, v: Tensor) -> Tensor:
    return torch._efficientzerotensor(s.shape, dtype=s.dtype, device=s.device)


OWN_OPS = (wave, centred, negated, nothing)


def draw(number: int) -> Case:
    """The case of this number."""
    random = Random(number)
    case = _draw_sequences(random, number, random.random() < 0.25, random.choices(list(MODES), [*MODES.values()])[0])
    case = replace(case, resets=not case.cell and Random(f"resets {number}").random() < 0.25)
    case = _draw_tensors(random, replace(case, shapes=_shapes(case)))
    if case.mode in ("grad", "no_grad", "inference_mode", "autocast") and random.random() < 0.1:
        odd = random.choice([*ANY, torch.int64, torch.complex64])
        dtypes = {random.choice([name for name in case.shapes if not name.startswith("gradient")]): odd}
        return replace(case, dtypes=dtypes, kinds={}, values={}, wanted=(), layout="")
    if case.mode in ("grad", "no_grad") and random.random() < 0.05:
        sizes = random.choice([(0, case.sizes[1]), (case.sizes[0], 0)])
        case = replace(case, sizes=sizes, kinds={}, values={}, wanted=(), layout="", shapes={})
        return replace(case, shapes=_shapes(case) if _is_taken(case) else {})
    return case


def _draw_tensors(random: Random, case: Case) -> Case:
    case = replace(case, chosen=_draw_chosen(random, case))
    if case.mode in ("vmap", "vmap of grad"):
        case = replace(case, shapes=case.shapes | {name: case.mapped(case.shapes[name]) for name in case.chosen})
    case = replace(case, kinds=_draw_kinds(random, case), values=_draw_values(random, case))
    if "huge" in case.values.values() and any(kind.startswith("expanded") for kind in case.kinds.values()):
        case = replace(case, values={})  # among logits that are huge and equal rounding decides
    if "wrapper" in case.kinds.values():
        # torch forgets the sign of a view of a wrapper
        ops = [minus if op is negated else op for op in case.options["ops"]]
        case = replace(case, options=case.options | {"ops": ops})
    wanted = tuple(name for name in case.chosen if KINDS[case.kinds.get(name, "plain")].leaf)
    layout = random.choice(["flat", "tied"]) if not case.kinds and random.random() < 0.15 else ""
    return replace(case, wanted=wanted, parameters=random.random() < 0.4, layout=layout)


def _is_taken(case: Case) -> bool:
    try:
        case.module()
    except ValueError:
        return False
    return True


def _draw_sequences(random: Random, number: int, cell: bool, mode: str) -> Case:
    batch = random.choice([0, 1, 1, 2, 3, 5, 29])
    form = random.choice(["padded"] * 4 + ["unbatched"] + ([] if cell else ["lengths", "packed"] * 2))
    steps = 1 if cell else random.choice([0, 1, 2, 3, 5, 7])
    lengths = [steps] * batch
    if form == "unbatched":
        lengths = [steps]
    elif form == "packed":
        lengths = sorted((random.randint(1, max(steps, 1)) for _ in range(max(batch, 1))), reverse=True)
    elif form == "lengths":
        lengths = [random.randint(0, steps) for _ in range(batch)]
    return Case(
        number, cell, (random.choice([1, 2, 3, 5, 8, 17]), random.choice([1, 2, 3, 5, 7, 11, 16, 33])),
        _draw_options(random, cell), random.random() < 0.7, random.choice([torch.float32, torch.float64, *ANY]), form,
        len(lengths), tuple(lengths), random.random() < 0.6, mode, random.choice([1, 2]),
    )  # fmt: skip


def _draw_options(random: Random, cell: bool) -> dict[str, Any]:
    """Each option that is left out has its default."""
    chosen: list[Any] = random.sample(names_of_ops(), random.randint(1, len(names_of_ops())))
    options: dict[str, Any] = {"ops": chosen + random.sample(OWN_OPS, random.choice([0, 0, 0, 0, 1, 2]))}
    choices: dict[str, tuple[Any, ...]] = {"bias": (False,), "reset": ("after", None), "activation": ("sigmoid",)}
    if not cell:
        noise = ("input_dropout", "state_dropout", "zoneout", "weight_dropout", "op_dropout")
        choices |= {"num_layers": (2, 3), "batch_first": (True,), "bidirectional": (True,), "checkpoint_every": (1, 2),
                    "learn_initial_state": (True,)} | {random.choice(noise): (0.3, 1.0)}  # fmt: skip
    options |= {name: random.choice(values) for name, values in choices.items() if random.random() < 0.25}
    if random.random() < 0.3:
        options |= {
            "controller_size": random.choice([1, 3, 6]),
            "controller_activation": random.choice(["tanh", "relu"]),
        }
    if options.get("num_layers", 1) > 1 and random.random() < 0.3:
        options["dropout"] = 0.4
    return options


def _shapes(case: Case) -> Shapes:
    (inputs, hidden), options = case.sizes, case.options
    units = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    grid: tuple[int, ...] = (case.steps, case.batch)
    if options.get("batch_first"):
        grid = grid[::-1]
    if case.form == "packed":
        grid = (sum(case.lengths),)
    elif case.form == "unbatched":
        grid = (case.steps,)
    batch = () if case.form == "unbatched" else (case.batch,)
    if case.cell:
        grid = batch
    states = {"": ((units, *batch) if not case.cell else batch) + (hidden,)}
    if controller := options.get("controller_size"):
        states[SUFFIX] = (*states[""][:-1], controller)
    shapes: Shapes = {"input": (*grid, inputs)}
    shapes |= {"hx" + name: shape for name, shape in states.items() if case.hx}
    shapes |= {name: tuple(parameter.shape) for name, parameter in case.module().named_parameters()}
    if not case.cell:
        shapes["gradient of output"] = (*grid, hidden * (1 + options.get("bidirectional", False)))
    shapes |= {"gradient of h_n" + name: shape for name, shape in states.items()}
    if case.mode == "batched gradients":
        shapes |= {name: (MAPPED, *shape) for name, shape in shapes.items() if name.startswith("gradient")}
    # a given state hides the one that is learned
    return {name: shape for name, shape in shapes.items() if not case.hx or name not in ("h_0", "k_0")}


def _draw_kinds(random: Random, case: Case) -> dict[str, str]:
    """One or two tensors that are not plain, none, or every one of one kind: so a failure names its cause."""
    names = [name for name in case.shapes if not name.startswith("gradient") or takes_gradients(case)]
    groups = [[name] for name in names] + [["input"]] * 4 + [["hx"]] * 2 * case.hx
    groups += [[name] for name in names if name.startswith("gradient")] * 2
    groups += [names, [name for name in names if not name.startswith("gradient")]]
    kinds: dict[str, str] = {}
    for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
        group = random.choice(groups)
        family = random.choices([READABLE, FOREIGN, GONE], [8, 1, 1])[0]
        wrapped = case.chosen if case.mode in TRANSFORMS else names if case.mode == "functionalize" else ()
        if not {*group}.isdisjoint(wrapped):
            family = READABLE  # torch wraps it first, and refuses in its own words
        # an incoming gradient passes through torch's own operators first
        kind = random.choice([*READABLE, "wrapper"] if "gradient" in group[-1] else list(family))
        group = names if kind == "meta" and len(group) > 1 else group
        kinds |= {name: kind for name in group if KINDS[kind].fits(case.dtype, case.shapes[name])}
    # torch can make no tensor that is of both classes
    others = {"plain", "subclass"} if "wrapper" in kinds.values() else {"plain"}
    return {name: kind for name, kind in kinds.items() if kind not in others}


def takes_gradients(case: Case) -> bool:
    return case.mode in ("grad", "double backward", "batched gradients", "autocast")


def _draw_values(random: Random, case: Case) -> dict[str, str]:
    if random.random() < 0.75:
        return {}
    values = random.choice(list(VALUES)[1:])
    names = random.choice([["input"], [random.choice(list(case.shapes))], list(case.shapes)])
    # products of huge numbers would be infinite
    return dict.fromkeys(names[:1] if values == "huge" else names, values)


def _draw_chosen(random: Random, case: Case) -> tuple[str, ...]:
    names = [name for name in case.shapes if not name.startswith("gradient")]
    weights = [name for name in names if name.startswith(("weight", "bias"))]
    no_bias = [name for name in names if not name.startswith("bias")]
    patterns = [names, names, names, weights, no_bias, ["input"], [random.choice(weights)]]
    return tuple(random.choice(patterns if case.mode in TRANSFORMS else [*patterns, []]))
