"""Base class of cell and layer: parameters of units, states, the call of a kernel, and its trace."""

import inspect
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from mufuru import kernels
from mufuru import ops as operations
from mufuru.kernels.call import Call, Masks, Packed, Result, previous_states
from mufuru.ops import Op, OpLike
from mufuru.saving.files import PretrainedError
from mufuru.saving.pretrained import Pretrained
from mufuru.trace import ByThread, Steps, Trace, of_this_thread
from mufuru.unit import Activation, ControllerActivation, OpBias, Reset, Unit, Weights, op_biases
from mufuru.validate import check_all, check_numbers

State: TypeAlias = Tensor | tuple[Tensor, Tensor]
Device: TypeAlias = torch.device | str | int | None


def autocasting(tensor: Tensor) -> bool:
    if not torch._C._is_any_autocast_enabled():
        return False
    device = tensor.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


class Recurrent(Pretrained):
    """A module made of units. Every constructor argument is kept as an attribute of the same name."""

    dtype_error: type[Exception] = ValueError
    """Error for an input of the wrong dtype."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        ops: Sequence[OpLike],
        reset: Reset,
        activation: Activation,
        controller_size: int | None,
        controller_activation: ControllerActivation,
        reset_bias: float,
        op_bias: OpBias,
        kernel: kernels.Choice,
    ) -> None:
        super().__init__()
        self._traces: ByThread[list[Trace]] = {}
        self._allowed: ByThread[tuple[bool, ...]] = {}
        self.unit = Unit(
            input_size, hidden_size, operations.resolve(ops), reset, activation,
            controller_size, controller_activation, bias,
        )  # fmt: skip
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.reset, self.activation = reset, activation
        self.controller_size, self.controller_activation = controller_size, controller_activation
        self.reset_bias, self.op_bias = reset_bias, op_bias
        self.kernel = kernels.check_choice(kernel)
        op_biases(op_bias, self.unit.ops, bias)
        self._units: list[tuple[Unit, str, tuple[str | None, ...]]] = []
        self._packed: dict[int, Packed] = {}

    def __getstate__(self) -> dict[str, Any]:
        # a copy made inside `tracing` or `intervene` outlives it, and its state would never be cleared
        return {**self.__dict__, "_packed": {}, "_traces": {}, "_allowed": {}}

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse `torch.jit.script`, which calls this first."""
        raise NotImplementedError(
            f"torch.jit.script cannot read {type(self).__name__}: use torch.export, torch.compile or, for a program of "
            "TorchScript, torch.jit.trace"
        )

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return self.unit.op_names

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        biases = op_biases(self.op_bias, self.unit.ops, self.bias)
        for index, (unit, _, _) in enumerate(self._units):
            unit.initialise(self._weights(index), float(self.reset_bias), biases)

    def extra_repr(self) -> str:
        """Positional arguments, then whatever differs from the defaults."""
        parts = []
        for name, parameter in inspect.signature(self._constructor()).parameters.items():
            value = getattr(self, name, inspect.Parameter.empty)
            if name in ("self", "device", "dtype") or value is inspect.Parameter.empty:
                continue
            if parameter.default is inspect.Parameter.empty:
                parts.append(str(value))
            elif value != parameter.default:
                parts.append(f"{name}={value!r}")
        return ", ".join(parts)

    def _operations(self) -> tuple[Op, ...]:
        return self.unit.ops

    def _check_savable(self) -> None:
        for name in (name for _, _, names in self._units for name in names):
            if name is not None and name not in self._parameters:
                raise PretrainedError(
                    f"{name} is computed from other tensors (a parametrization, weight norm or pruning): make it a "
                    "parameter again, for example with torch.nn.utils.parametrize.remove_parametrizations, then save"
                )

    def _add_unit(self, unit: Unit, suffix: str, device: Device, dtype: torch.dtype | None) -> None:
        for stem, shape in unit.shapes().items():
            self.register_parameter(stem + suffix, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._units.append((unit, suffix, unit.names(suffix)))

    def _weights(self, index: int) -> Weights:
        names = self._units[index][2]
        tensors: Any = check_all(names, [None if name is None else self._weight(name) for name in names])
        return Weights(*tensors)

    def _weight(self, name: str | None) -> Any:
        """Return the attribute, directly if it is a parameter: a module's `getattr` is slow."""
        if name is None:
            return None
        weight = self._parameters.get(name)
        return getattr(self, name) if weight is None else weight

    def _packed_weights(self, index: int) -> Packed | None:
        """Return a place for the weights of a unit in a kernel's own form; none in a graph, which has no state."""
        return None if torch.compiler.is_compiling() else self._packed.setdefault(index, {})

    def _recorded(self, proxy: Proxy, *args: Any) -> Any:
        """Record the layer as one call, as `torch.fx` does with torch's layers."""
        if not type(self).forward.__module__.startswith("mufuru."):
            # the call would be recorded inside itself, and the code around it in its forward would run twice
            raise TypeError(
                f"torch.fx cannot look into {type(self).__name__}, a subclass with its own forward: "
                "take it whole, with a torch.fx.Tracer whose is_leaf_module says so"
            )
        tracer: Any = proxy.tracer
        return tracer.create_proxy("call_module", tracer.path_of_module(self), (proxy, *args), {})

    def _check_dtype(self, x: Tensor) -> None:
        weight = self._first_weight
        if x.dtype != weight.dtype and not (autocasting(x) and x.is_floating_point()):
            raise self.dtype_error(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )

    def _check_device(self, x: Tensor) -> None:
        weight = self._first_weight
        if x.device != weight.device:
            raise RuntimeError(
                "Input and parameter tensors are not at the same device, found input tensor at "
                f"{x.device} and parameter tensor at {weight.device}. Move one with .to(device)"
            )

    def _check_state(self, state: Tensor) -> None:
        weight = self._first_weight
        if state.device != weight.device:
            raise RuntimeError(
                "Input and hidden tensors are not at the same device, found input tensor at "
                f"{weight.device} and hidden tensor at {state.device}. Move hx with .to(device)"
            )
        if state.dtype != weight.dtype and not (autocasting(state) and state.is_floating_point()):
            raise RuntimeError(f"hx dtype ({state.dtype}) does not match weight dtype ({weight.dtype})")

    @property
    def _first_weight(self) -> Tensor:
        weight: Tensor = self._weight(self._units[0][2][0])
        return weight

    def _pair(self, hx: State | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the user's state as (h, k), either of which may be `None`."""
        if hx is None:
            return None, None
        if self.controller_size is None:
            if not isinstance(hx, Tensor):
                raise TypeError(f"hx should be a tensor (pairs are for controller_size=...), got {type(hx).__name__}")
            return check_numbers("hx", hx), None
        if not isinstance(hx, tuple | list) or len(hx) != 2:
            raise TypeError(f"with a recurrent controller hx is a pair (h, k), got {type(hx).__name__}")
        h, k = hx
        if not (isinstance(h, Tensor) and isinstance(k, Tensor)):
            kinds = f"({type(h).__name__}, {type(k).__name__})"
            raise TypeError(f"with a recurrent controller hx is a pair (h, k) of tensors, got {kinds}")
        return check_numbers("hx", h), check_numbers("hx", k)

    def _execute(self, call: Call, checkpoint_every: int | None = None) -> tuple[Result, Steps | None]:
        """Run on the chosen kernel, with interventions. Autocast computes in the parameters' precision or float32, and
        returns, as `nn.GRU` does, the type that the state's and autocast's promote to."""
        if self._allowed or self._traces:
            traced = of_this_thread(self._traces) is not None
            call = call._replace(masks=self._intervened(call.masks, call.s0), trace=traced)
        if autocasting(call.x):
            returned = torch.promote_types(call.s0.dtype, torch.get_autocast_dtype(call.x.device.type))
            kernels.check_weights(call, call.weights.ih.dtype)
            call = kernels.call_to(call, torch.promote_types(call.weights.ih.dtype, torch.float32))
            call = call._replace(bfloat16=torch.get_autocast_dtype(call.x.device.type) == torch.bfloat16)
            with torch.autocast(call.x.device.type, enabled=False):
                result = kernels.execute(call, self.kernel, checkpoint_every)
            result = kernels.result_to(result, returned)
        else:
            result = kernels.execute(call, self.kernel, checkpoint_every)
        if result.p is None or result.v is None:
            return result, None
        s0 = call.s0.to(result.output.dtype)
        before = previous_states(result.output, s0, call.batch_sizes, call.reverse, call.masks.resets)
        return result, Steps(result.p, before, result.v, result.output)

    def _intervened(self, masks: Masks, s0: Tensor) -> Masks:
        by_name = of_this_thread(self._allowed)
        if by_name is None:
            return masks
        allowed = torch.tensor(by_name, device=s0.device).expand(s0.size(0), -1)
        if masks.allowed is not None:
            both = allowed & masks.allowed
            # where dropout removed all that an intervention allows, only the intervention counts
            allowed = torch.where(both.any(1, keepdim=True), both, allowed)
        return masks._replace(allowed=allowed)
