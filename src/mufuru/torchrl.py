"""`MuFuRUModule`: the layer inside a TorchRL policy, in place of `GRUModule`. Needs `pip install '.[torchrl]'`."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from mufuru.layer import MuFuRU

try:
    from tensordict import TensorDictBase
    from tensordict.nn import dispatch
    from torchrl.modules import GRUModule
except ImportError as error:
    raise ImportError(
        f"mufuru.torchrl needs the package {error.name}: `pip install '.[torchrl]'` in the folder of mufuru"
    ) from error


class MuFuRUModule(GRUModule):  # type: ignore[misc]
    """A `MuFuRU` layer that reads and writes a TensorDict, as TorchRL's `GRUModule` does with an `nn.GRU`.

    It has the keys, the modes and the primer of `GRUModule`: one step at a time by default, whole rollouts inside
    `torchrl.modules.set_recurrent_mode(True)` or with `default_recurrent_mode=True`. There the last dimension of the
    TensorDict is time, `is_init` says where an episode begins, and the episodes of a rollout run in one call.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for `GRUModule`.
        in_key, in_keys, out_key, out_keys, device, default_recurrent_mode: as for `GRUModule`.
        mufuru: a layer with `batch_first=True` to take in place of a new one.
        options: further arguments of `MuFuRU`, such as `ops` and `kernel`.

    Examples:
        >>> module = MuFuRUModule(3, 16, in_keys=["observation", "rs"], out_keys=["features", ("next", "rs")])
        >>> from tensordict import TensorDict
        >>> seen = TensorDict({"observation": torch.randn(4, 3), "is_init": torch.ones(4, 1).bool()}, 4)
        >>> module(seen)["features"].shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        in_key: Any = None,
        in_keys: Any = None,
        out_key: Any = None,
        out_keys: Any = None,
        device: Any = None,
        mufuru: MuFuRU | None = None,
        default_recurrent_mode: bool | None = None,
        **options: Any,
    ) -> None:
        if mufuru is None and input_size is not None and hidden_size is not None:
            mufuru = MuFuRU(
                input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, **options
            )
        elif mufuru is None or input_size is not None or hidden_size is not None or options:
            raise ValueError(
                "MuFuRUModule takes input_size and hidden_size, with the options of MuFuRU, or a layer as mufuru=, "
                f"got input_size={input_size}, hidden_size={hidden_size}, mufuru={mufuru}"
            )
        if mufuru.controller_size is not None or mufuru.learn_initial_state:
            raise ValueError(
                "a TensorDict has one recurrent state, and its primer gives the first one: leave out controller_size "
                "and learn_initial_state"
            )
        # its own check of batch_first, its keys and its primer serve any layer with the sizes of nn.GRU
        super().__init__(
            gru=mufuru, in_key=in_key, in_keys=in_keys, out_key=out_key, out_keys=out_keys,
            default_recurrent_mode=default_recurrent_mode,
        )  # fmt: skip

    @property
    def mufuru(self) -> MuFuRU:
        """The layer."""
        layer: MuFuRU = self.gru
        return layer

    def make_python_based(self) -> NoReturn:
        raise NotImplementedError("a MuFuRU has no other form: choose its kernel with kernel=")

    make_cudnn_based = make_python_based

    @dispatch  # type: ignore[untyped-decorator]
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        shape = tensordict.shape
        if self.recurrent_mode and not shape:
            raise ValueError("in recurrent mode the last dimension of a TensorDict is time, got one without dimensions")
        rows = tensordict.select(*self.in_keys, strict=False)
        rows = rows.reshape(-1, shape[-1]) if self.recurrent_mode else rows.reshape(-1).unsqueeze(-1)
        x, state, new = rows.get(self.in_keys[0]), rows.get(self.in_keys[1], None), rows.get("is_init").squeeze(-1)
        if state is None:
            state = x.new_zeros(*x.shape[:2], len(self.mufuru.all_weights), self.mufuru.hidden_size)
        elif not self.recurrent_mode:
            state = torch.where(new[..., None, None], 0.0, state)
        # a rollout may start in the middle of an episode, with the state at the end of the last one
        new = torch.cat([torch.ones_like(new[:, :1]), new[:, 1:]], 1)
        for key, value in zip(self.out_keys, self._episodes(x, state, new), strict=True):
            tensordict.set(key, value.reshape(*shape, *value.shape[2:]))
        return tensordict

    def _episodes(self, x: Tensor, state: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Output, (rows, steps, size), and the states at the ends of episodes, zero elsewhere."""
        parts = self._parts(state, new)
        row, begin = parts.nonzero(as_tuple=True)
        first = state[row, begin].transpose(0, 1).contiguous()
        if len(row) == len(x):
            output, h_n = self.mufuru(x, first, resets=new if new[:, 1:].any() else None)
        else:
            output, h_n = self._in_parts(x, first, new, row * x.size(1) + begin)
        ends = torch.cat([new[:, 1:], torch.ones_like(new[:, :1])], 1)
        if self.mufuru.num_layers == 1:
            h = self.mufuru.hidden_size
            last = [output[ends][:, :h], *([output[new][:, h:]] if self.mufuru.bidirectional else [])]
            h_n = torch.stack(last)
        states = torch.zeros_like(state)
        states[ends] = h_n.transpose(0, 1)
        return output, states

    def _parts(self, state: Tensor, new: Tensor) -> Tensor:
        """(rows, steps), bool: where a separate sequence begins. All other episodes are resets within one."""
        if self.mufuru.num_layers > 1 or state.requires_grad:
            return new  # several layers return the lower layers' states only at the end
        row, begin = new.nonzero(as_tuple=True)
        first = state[row, begin]
        # a reset leads back to the state that the sequence began with
        same = (first[1:] == first[:-1]).flatten(1).all(1) & (row[1:] == row[:-1])
        parts = new.clone()
        parts[row[1:][same], begin[1:][same]] = False
        return parts

    def _in_parts(self, x: Tensor, first: Tensor, new: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Rows cut where `begins`, counted over all of them, is true."""
        lengths = torch.cat([begins, begins.new_tensor([new.numel()])]).diff()
        steps = torch.arange(int(lengths.max()), device=x.device)
        inside = steps < lengths[:, None]
        at = torch.where(inside, begins[:, None] + steps, 0)
        output, h_n = self.mufuru(x.flatten(0, 1)[at], first, lengths, new.flatten()[at])
        return output[inside].unflatten(0, new.shape), h_n
