"""`MuFuRUModule` in the place of TorchRL's `GRUModule`: the same keys, shapes and, from the same weights, numbers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mufuru import MuFuRU

pytest.importorskip("torchrl", reason="needs torchrl: pip install '.[torchrl]'")
# TorchRL and TensorDict warn of their own next versions, and of torch's
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase, InitTracker, TransformedEnv
    from torchrl.modules import GRUModule, set_recurrent_mode

    from mufuru.torchrl import MuFuRUModule

KEYS: dict[str, Any] = {"in_keys": ["observation", "rs"], "out_keys": ["features", ("next", "rs")]}
N, M = 2, 5


def pair(layers: int = 1, bidirectional: bool = False, **keys: Any) -> tuple[Any, Any]:
    """A `GRUModule`, and a `MuFuRUModule` with its weights."""
    gru = GRUModule(N, M, layers, bidirectional=bidirectional, **keys or KEYS)
    options: dict[str, Any] = {"ops": ("keep", "replace"), "reset": "after"}
    ours = MuFuRUModule(N, M, layers, bidirectional=bidirectional, **keys or KEYS, **options)
    ours.mufuru.load_state_dict(MuFuRU.from_gru(gru.gru).state_dict())
    return gru, ours


def rollout(*shape: int, units: int = 1, state: str = "carried") -> Any:
    """Observations of several episodes, with the states that a collector would have kept, or without any."""
    new = torch.rand(*shape, 1) < 0.3
    data = TensorDict({"observation": torch.randn(*shape, N), "is_init": new}, shape)
    if state != "none":
        rs = torch.randn(*shape, units, M)
        data["rs"] = torch.where(new.unsqueeze(-1), 0.0, rs) if state == "carried" else rs
    return data


def assert_same(found: Any, wanted: Any) -> None:
    assert set(found.keys(True, True)) == set(wanted.keys(True, True))
    for key in wanted.keys(True, True):
        # float32, and sums in another order
        torch.testing.assert_close(found[key], wanted[key], rtol=0, atol=2e-6, msg=str(key))


@pytest.mark.parametrize("state", ["carried", "any", "none"])
@pytest.mark.parametrize("shape", [(4, 7), (7,), (2, 3, 6), (3, 1)], ids=str)
@pytest.mark.parametrize(("layers", "both"), [(1, False), (1, True), (2, False), (2, True)])
def test_rollouts_give_the_numbers_of_grumodule(layers: int, both: bool, shape: Any, state: str) -> None:
    gru, ours = pair(layers, both)
    data = rollout(*shape, units=layers * (1 + both), state=state)
    results = []
    for module in (gru, ours):
        with set_recurrent_mode(True):
            out = module(data.clone())
        (out["features"].square().sum() + out["next", "rs"].sum()).backward()
        results.append(out.detach())
    assert_same(results[1], results[0])
    # the input's part of the candidate has the same rows in both
    wanted, found = gru.gru.weight_ih_l0.grad[2 * M :], ours.gru.weight_ih_l0.grad[:M]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * (1 + wanted.abs().max().item()))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("state", ["any", "none"])
@pytest.mark.parametrize("layers", [1, 2])
def test_steps_give_the_numbers_of_grumodule(layers: int, shape: Any, state: str) -> None:
    gru, ours = pair(layers)
    data = rollout(*shape, units=layers, state=state)
    assert_same(ours(data.clone()).detach(), gru(data.clone()).detach())


def test_a_rollout_is_its_steps() -> None:
    module = MuFuRUModule(N, M, 2, in_key="observation", out_key="features")
    data, outputs, state = rollout(3, 9, state="none"), [], torch.zeros(3, 2, M)
    for t in range(9):
        step = module(data[:, t].clone().set("recurrent_state", state))
        outputs.append(step["features"])
        state = step["next", "recurrent_state"]
    with set_recurrent_mode(True):
        whole = module(data.clone())
    torch.testing.assert_close(whole["features"], torch.stack(outputs, 1), rtol=0, atol=1e-6)
    torch.testing.assert_close(whole["next", "recurrent_state"][:, -1], state, rtol=0, atol=1e-6)


class Corridor(EnvBase):  # type: ignore[misc]
    """A sign in the first step, seen once, and a reward for the turn that it named in the last."""

    def __init__(self, count: int = 4) -> None:
        super().__init__(batch_size=torch.Size([count]))
        self.observation_spec = Composite(observation=Unbounded((count, N)), shape=(count,))
        self.action_spec = Categorical(2, shape=(count,))
        self.reward_spec = Unbounded((count, 1))
        self.done_spec = Composite(done=Bounded(0, 1, (count, 1), dtype=torch.bool), shape=(count,))
        self.sign, self.left = torch.ones(count), torch.zeros(count)

    def _observed(self, new: Tensor) -> Tensor:
        return torch.stack([torch.where(new, self.sign, 0.0), (self.left == 0).float()], -1)

    def _reset(self, tensordict: Any) -> Any:
        new = torch.ones(self.batch_size).bool()
        if tensordict is not None and (some := tensordict.get("_reset", None)) is not None:
            new = some.squeeze(-1)
        self.sign = torch.where(new, torch.randint(0, 2, self.batch_size) * 2.0 - 1, self.sign)
        self.left = torch.where(new, torch.randint(2, 6, self.batch_size).float(), self.left)
        done = torch.zeros(*self.batch_size, 1, dtype=torch.bool)
        return TensorDict({"observation": self._observed(new), "done": done}, self.batch_size)

    def _step(self, tensordict: Any) -> Any:
        right = (tensordict["action"] == (self.sign > 0)).float() * 2 - 1
        done = self.left == 0
        self.left = (self.left - 1).clamp(min=0)
        reward = torch.where(done, right, 0.0).unsqueeze(-1)
        seen = self._observed(torch.zeros_like(done))
        return TensorDict({"observation": seen, "reward": reward, "done": done.unsqueeze(-1)}, self.batch_size)

    def _set_seed(self, seed: int | None) -> None:
        torch.manual_seed(0 if seed is None else seed)


def collected(module: Any, batches: int) -> list[Any]:
    """What a collector brings, and what the module makes of the whole of it in one call."""
    torch.manual_seed(1)
    env = TransformedEnv(Corridor(), InitTracker())
    env.append_transform(module.make_tensordict_primer())
    head = nn.Linear(M, 2)
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-1, 1, 2 * M).view(2, M))
    # no chance in it: two modules with the same numbers then see the same world
    turn = TensorDictModule(lambda features: head(features).argmax(-1), in_keys=["features"], out_keys=["action"])
    policy = TensorDictSequential(module, turn)
    collector = Collector(env, policy, frames_per_batch=40, total_frames=40 * batches)
    found = []
    for data in collector:
        with set_recurrent_mode(True):
            found.append((data.clone(), module(data.clone().exclude("features", ("next", "rs")))))
    collector.shutdown()
    return found


def test_collector_loop() -> None:
    gru, ours = pair()
    by_gru, by_ours = collected(gru, 3), collected(ours, 3)
    assert len(by_ours) == 3
    for (theirs, _), (data, whole) in zip(by_gru, by_ours, strict=True):
        assert_same(data.detach(), theirs.detach())
        assert data["is_init"][:, 1:].any()
        # one call sees what the steps saw, also where a rollout begins in the middle of an episode
        torch.testing.assert_close(whole["features"], data["features"], rtol=0, atol=1e-5)
    assert not by_ours[1][0]["is_init"][:, 0].all()


def test_primer_is_grumodules() -> None:
    gru, ours = pair(2, True)
    assert str(ours.make_tensordict_primer().primers) == str(gru.make_tensordict_primer().primers)
    assert (ours.in_keys, ours.out_keys) == (gru.in_keys, gru.out_keys)
    one, other = pair(in_key="observation", out_key="features")
    assert (other.in_keys, other.out_keys) == (one.in_keys, one.out_keys)


def test_modes() -> None:
    _, ours = pair()
    assert not ours.recurrent_mode
    with set_recurrent_mode(True):
        assert ours.recurrent_mode
    assert MuFuRUModule(N, M, **KEYS, default_recurrent_mode=True).recurrent_mode
    with set_recurrent_mode(True), pytest.raises(ValueError, match="the last dimension of a TensorDict is time"):
        ours(rollout())


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no sizes": ({}, ValueError, "MuFuRUModule takes input_size and hidden_size"),
    "both": ({"input_size": 3, "mufuru": MuFuRU(N, M, batch_first=True)}, ValueError, "or a layer as mufuru="),
    "time first": ({"mufuru": MuFuRU(N, M)}, ValueError, "batch_first=True"),
    "controller": ({"input_size": 3, "hidden_size": 4, "controller_size": 2}, ValueError, "leave out controller_size"),
    "learned": ({"input_size": 3, "hidden_size": 4, "learn_initial_state": True}, ValueError, "its primer gives the"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str) -> None:
    options, error, text = WRONG[case]
    with pytest.raises(error) as caught:
        MuFuRUModule(**options, **KEYS)
    assert text in str(caught.value)
    with pytest.raises(NotImplementedError, match="choose its kernel"):
        MuFuRUModule(N, M, **KEYS).make_cudnn_based()


def test_mufuru_does_not_need_it() -> None:
    program = "import sys, mufuru; assert not {'torchrl', 'tensordict', 'mufuru.torchrl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_says_what_to_install() -> None:
    program = "import sys; sys.modules['torchrl'] = None; sys.modules['torchrl.modules'] = None; import mufuru.torchrl"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install '.[torchrl]'" in done.stderr
