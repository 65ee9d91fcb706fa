import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lengthwise.checkpoints import Head
from lengthwise.checkpoints.resolve import read_config, resolve
from lengthwise.errors import MissingError, UsageError
from lengthwise.subjects import LoadedModel, as_model, load
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.architectures import TINY_ARCHITECTURES, random_ids, tiny_model, with_lora
from tests.readings import in_memory
from tests.tiny_folders import rewritten, saved


def logits(loaded: LoadedModel) -> torch.Tensor:
    return loaded.head.logits(loaded.hidden_states(random_ids())).detach()


class TestLoad:
    def test_a_folder(self, folder: Path):
        loaded = load(str(folder))
        assert not loaded.model.training
        assert isinstance(loaded.head, Head)
        torch.testing.assert_close(logits(loaded), tiny_llama()(input_ids=random_ids()).logits.detach())
        assert not loaded.hidden_states(random_ids()).requires_grad
        assert loaded.name == loaded.source == str(folder)
        assert (loaded.vocab_size, loaded.trained_length, loaded.max_positions) == (320, 128, None)
        assert loaded.tokenizer.decode(loaded.tokenizer("the king").input_ids) == "the king"

    def test_describe_is_json_and_names_what_matters(self, folder: Path):
        described = load(str(folder), dtype="bfloat16", attn_implementation="eager").describe()
        assert json.loads(json.dumps(described)) == described
        assert described["dtype"] == "bfloat16"
        assert described["attn_implementation"] == "eager"
        assert described["parameters"] == 28832
        assert described["head"] == "proven"
        assert described["rope_parameters"] == {"rope_theta": 10000.0, "rope_type": "default"}

    def test_dtype_auto_is_the_saved_one(self, tmp_path: Path):
        saved(tiny_llama().to(torch.bfloat16), tmp_path / "m")
        assert load(str(tmp_path / "m")).model.dtype == torch.bfloat16
        assert load(str(tmp_path / "m"), dtype="float32").model.dtype == torch.float32

    @pytest.mark.parametrize(("times", "warned"), [(1.0, False), (60.0, True)])
    def test_a_dtype_that_the_processor_emulates(self, folder, monkeypatch, caplog, times, warned):
        monkeypatch.setattr("lengthwise.machine.slowdown", lambda dtype: times)
        load(str(folder), dtype="bfloat16")
        assert ("60 times" in caplog.text) == warned
        caplog.clear()
        load(str(folder), dtype="float32")
        assert not caplog.text


class TestAdapter:
    @staticmethod
    def save_adapter(path: Path, model: nn.Module) -> nn.Module:
        wrapped = with_lora(model)
        wrapped.save_pretrained(path)
        return wrapped

    def test_of_another_model(self, folder: Path, tmp_path: Path):
        self.save_adapter(tmp_path / "adapter", tiny_llama(hidden_size=64))
        with pytest.raises(UsageError):
            load(str(folder), adapter=str(tmp_path / "adapter"))

    def test_in_place_of_the_model(self, tmp_path: Path):
        self.save_adapter(tmp_path / "adapter", tiny_llama())
        with pytest.raises(MissingError, match="--adapter"):
            load(str(tmp_path / "adapter"))


class TestPositions:
    @pytest.mark.parametrize("name", TINY_ARCHITECTURES)
    def test_limit_is_where_the_model_itself_fails(self, name: str, tmp_path: Path):
        loaded = in_memory(tiny_model(name), name)
        learned = name in ("gpt2", "opt", "gptj-bias")
        assert loaded.max_positions == (64 if learned else None)
        assert loaded.hidden_states(random_ids(1, 64)).isfinite().all()
        if learned:
            with pytest.raises((IndexError, RuntimeError)):
                loaded.model(input_ids=random_ids(1, 65))
            with pytest.raises(UsageError, match=r"65.*64"):
                loaded.hidden_states(random_ids(1, 65))
        else:
            assert loaded.hidden_states(random_ids(1, 65)).isfinite().all()

    def test_position_ids_count_too(self):
        loaded = in_memory(tiny_model("gpt2"), "gpt2")
        positions = torch.tensor([[*range(11), 64]])
        with pytest.raises(UsageError, match="65"):
            loaded.hidden_states(random_ids(1), position_ids=positions)


class TestIncomplete:
    def test_no_config(self, folder: Path):
        (folder / "config.json").unlink()
        with pytest.raises(MissingError, match=r"config\.json"):
            load(str(folder))

    def test_missing_shard_is_named(self, tmp_path: Path):
        folder = saved(tiny_llama(), tmp_path / "m", max_shard_size="40KB")
        shard = sorted(folder.glob("*.safetensors"))[1]
        shard.unlink()
        with pytest.raises(MissingError, match=shard.name):
            load(str(folder))


class TestNotCausal:
    def test_unknown_model_type(self, folder: Path):
        with pytest.raises(UsageError, match="lama"):
            load(rewritten(folder, model_type="lama"))

    def test_file_that_is_no_model(self, tmp_path: Path):
        (tmp_path / "weights.bin").write_bytes(b"x")
        with pytest.raises(UsageError):
            load(str(tmp_path / "weights.bin"))


class TestTokenizer:
    def test_padded_vocabulary_is_fine(self, tmp_path: Path):
        folder = save_tiny_model(tmp_path / "m", vocab_size=320)
        tiny_tokenizer(vocab_size=300).save_pretrained(folder)
        assert load(str(folder)).vocab_size == 320

    def test_special_tokens_beyond_the_vocabulary_are_fine(self, folder: Path):
        tokenizer = tiny_tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
        tokenizer.save_pretrained(folder)
        assert max(load(str(folder)).tokenizer.get_vocab().values()) == 320


@pytest.mark.usefixtures("offline")
class TestHub:
    SHA = "0123456789abcdef0123456789abcdef01234567"

    @pytest.fixture
    def hub_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        return tmp_path / "hub"

    def put(self, hub_cache: Path) -> Path:
        repository = hub_cache / "models--someone--tiny"
        save_tiny_model(repository / "snapshots" / self.SHA)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(self.SHA)
        return repository / "snapshots" / self.SHA

    @pytest.mark.parametrize("revision", [None, "main", SHA])
    def test_from_the_local_hub_cache(self, hub_cache: Path, revision: str | None):
        self.put(hub_cache)
        loaded = load("someone/tiny", revision=revision)
        assert loaded.source == f"someone/tiny@{self.SHA}"
        torch.testing.assert_close(logits(loaded), tiny_llama()(input_ids=random_ids()).logits.detach())

    def test_not_in_the_cache(self, hub_cache: Path):
        with pytest.raises(MissingError, match="hf download someone/other"):
            load("someone/other")
        self.put(hub_cache)
        with pytest.raises(MissingError, match="hf download someone/tiny"):
            load("someone/tiny", revision="v2")

    def test_a_configuration_alone(self, hub_cache: Path):
        """What a plan needs, here without a connection."""
        (self.put(hub_cache) / "model.safetensors").unlink()
        assert read_config(resolve("someone/tiny")).model_type == "llama"

    def test_hub_that_cannot_be_reached(self, hub_cache: Path, monkeypatch: pytest.MonkeyPatch):
        class ConnectError(Exception):
            pass

        def unreachable(*_: Any, **__: Any) -> None:
            raise ConnectError("Name or service not known")

        monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
        with pytest.raises(MissingError, match="Name or service not known"):
            load("someone/tiny")
        self.put(hub_cache)
        assert load("someone/tiny").source == f"someone/tiny@{self.SHA}"

    def test_not_a_name(self):
        with pytest.raises(UsageError, match="'what is this'"):
            load("what is this")

    def test_revision_of_a_folder(self, folder: Path):
        with pytest.raises(UsageError):
            load(str(folder), revision="main")


class TestAsModel:
    def test_a_loaded_model_a_path_and_a_pair(self, folder: Path):
        loaded = as_model(str(folder))
        assert as_model(loaded) is loaded
        assert as_model(folder).source == str(folder)
        pair = as_model((loaded.model, loaded.tokenizer))
        assert (pair.model, pair.tokenizer, pair.name) == (loaded.model, loaded.tokenizer, str(folder))
        torch.testing.assert_close(logits(pair), logits(loaded))

    def test_a_model_from_no_folder_has_the_name_of_its_class(self):
        assert as_model((tiny_llama(), tiny_tokenizer())).name == "LlamaForCausalLM"

    @pytest.mark.parametrize(
        "thing", [None, 3, tiny_llama(), (tiny_tokenizer(), tiny_llama()), (tiny_llama(),)]
    )
    def test_what_is_no_model(self, thing: Any):
        with pytest.raises(UsageError):
            as_model(thing)
