"""The Hub: what would go up and what comes down, with huggingface_hub's network calls replaced by a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import PyTorchModelHubMixin
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils._validators import validate_repo_id
from torch import Tensor, nn

import mufuru
from mufuru import MuFuRU
from mufuru.saving.files import PretrainedError

FILES = {"config.json", "model.safetensors", "README.md"}


class Hub:
    """Repositories as folders, and a record of what was asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[dict[str, Any]] = []

    def create_repo(self, repo_id: str, **options: Any) -> Any:
        self.asked.append({"create": repo_id, **options})
        # the Hub adds the user's name where it is missing
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> str:
        self.asked.append({"upload": repo_id, **options})
        shutil.copytree(folder_path, self.root / repo_id)
        return f"https://hub/{repo_id}/commit/1"

    def download(self, repo_id: str, filename: str, **options: Any) -> str:
        validate_repo_id(repo_id)
        self.asked.append({"download": filename, **options})
        path = self.root / repo_id / filename
        if not path.parent.exists():
            raise RepositoryNotFoundError(f"404: no repository {repo_id}", response=_response())
        if not path.exists():
            raise EntryNotFoundError(f"404: no {filename}")
        return str(path)


def _response() -> Any:
    return SimpleNamespace(headers={}, request=None)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    fake = Hub(tmp_path / "hub")
    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub.HfApi, name, lambda api, _name=name, **given: getattr(fake, _name)(**given))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", fake.download)
    return fake


def test_up_and_down(hub: Hub) -> None:
    layer = MuFuRU(3, 4, num_layers=2)
    address = layer.push_to_hub("someone/memory", private=True, commit_message="First", branch="main")
    assert address == "https://hub/someone/memory/commit/1"
    assert {path.name for path in (hub.root / "someone" / "memory").iterdir()} == FILES
    created, uploaded = hub.asked
    assert created["private"] is True
    assert (uploaded["commit_message"], uploaded["revision"]) == ("First", "main")
    loaded = MuFuRU.from_pretrained("someone/memory", revision="v1", token="secret")
    assert all(asked["revision"] == "v1" and asked["token"] == "secret" for asked in hub.asked[2:])
    assert {asked["download"] for asked in hub.asked[2:]} == {"config.json", "model.safetensors"}
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, loaded.get_parameter(name))


def test_save_and_push_at_once(hub: Hub, tmp_path: Path) -> None:
    address = MuFuRU(3, 4).save_pretrained(tmp_path / "memory", push_to_hub=True, private=True, card="# Mine")
    assert address == "https://hub/me/memory/commit/1"
    assert (hub.root / "me" / "memory" / "README.md").read_text() == "# Mine"
    assert {path.name for path in (tmp_path / "memory").iterdir()} == FILES
    with pytest.raises(TypeError, match="takes private, repo_id only with push_to_hub=True"):
        MuFuRU(3, 4).save_pretrained(tmp_path / "memory", private=True, repo_id="x")


def test_the_card_is_one_that_the_hub_can_read(tmp_path: Path) -> None:
    MuFuRU(3, 4).save_pretrained(tmp_path)
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "mufuru"
    assert "mufuru" in card.data.tags
    assert 'mufuru.MuFuRU.from_pretrained("this/model")' in card.text


def test_what_is_not_on_the_hub(hub: Hub) -> None:
    MuFuRU(3, 4).push_to_hub("someone/memory")
    (hub.root / "someone" / "memory" / "model.safetensors").unlink()
    torch.save({}, hub.root / "someone" / "memory" / "pytorch_model.bin")
    with pytest.raises(PretrainedError, match=r"someone/memory has no config.json or no model.safetensors"):
        MuFuRU.from_pretrained("someone/memory")
    for text in ("{", "[]"):
        (hub.root / "someone" / "memory" / "config.json").write_text(text)
        with pytest.raises(PretrainedError, match=r"config.json of someone/memory is damaged"):
            MuFuRU.from_pretrained("someone/memory")
    with pytest.raises(RepositoryNotFoundError, match="no repository someone/else"):
        MuFuRU.from_pretrained("someone/else")
    with pytest.raises(PretrainedError, match="neither a folder nor the name of a repository on the Hub"):
        MuFuRU.from_pretrained("/no/such/folder")


class Tagger(nn.Module, PyTorchModelHubMixin):
    """A user's own model, with huggingface_hub's mixin as its documentation has it."""

    def __init__(self, words: int, units: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, units)
        self.read = MuFuRU(units, units, bidirectional=True)
        self.tag = nn.Linear(2 * units, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        tags: Tensor = self.tag(self.read(self.embed(tokens))[0])
        return tags


def test_a_layer_inside_of_a_users_own_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Tagger(7, 4).eval()
    model.save_pretrained(tmp_path)
    loaded = Tagger.from_pretrained(tmp_path)
    tokens = torch.randint(7, (5, 2))
    assert torch.equal(model(tokens), loaded(tokens))


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import warnings
warnings.simplefilter("ignore")  # torch warns where there is no NumPy
sys.path.insert(0, {source!r})
import mufuru
layer = mufuru.MuFuRU(3, 4)
for call in (lambda: layer.save_pretrained({folder!r}), lambda: mufuru.MuFuRU.from_pretrained({folder!r}),
             lambda: layer.push_to_hub("a/b"), lambda: mufuru.MuFuRU.from_pretrained("a/b")):
    try:
        print(type(call()).__name__)
    except ModuleNotFoundError as error:
        print(error)
"""


NO_HUB = "huggingface_hub is not installed: `pip install '.[hub]'` in the folder of mufuru"
NO_FILES = "safetensors is not installed: `pip install '.[hub]'` in the folder of mufuru"


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        (["huggingface_hub"], ["NoneType", "MuFuRU", NO_HUB, NO_HUB]),
        (["huggingface_hub", "safetensors", "numpy"], [NO_FILES, NO_FILES, NO_HUB, NO_HUB]),
    ],
    ids=["without huggingface_hub", "with torch alone"],
)
def test_without_optional_packages(absent: list[str], said: list[str], tmp_path: Path) -> None:
    """A folder needs no Hub, and torch alone says what to install."""
    MuFuRU(3, 4).save_pretrained(tmp_path)
    source = str(Path(mufuru.__file__).parents[1])
    program = WITHOUT.format(absent=absent, source=source, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == said, done.stderr
