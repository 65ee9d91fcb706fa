from pathlib import Path

import pytest
import torch

from lengthwise.subjects import load
from lengthwise.subjects.loaded_model import SAMPLED, config_fingerprint, weights_fingerprint
from lengthwise.testing import save_tiny_model, tiny_llama


def test_a_copy_has_the_same_fingerprint_and_other_weights_change_theirs_alone(tmp_path: Path):
    folders = [save_tiny_model(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    one, copy, other = (load(str(folder)).fingerprint() for folder in folders)
    assert one == copy == load(str(folders[0])).fingerprint()
    assert set(one) == {"weights", "config", "tokenizer"}
    assert [name for name in one if one[name] != other[name]] == ["weights"]


def test_rope_changes_the_configuration():
    plain, turned = tiny_llama(), tiny_llama(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert weights_fingerprint(plain) == weights_fingerprint(turned)
    assert config_fingerprint(plain.config) != config_fingerprint(turned.config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_tensor_is_read_whole_and_a_large_one_sampled(dtype: torch.dtype):
    def changed(size: int, at: int) -> bool:
        before, after = torch.zeros(2, size, dtype=dtype)
        after[at] = 1
        one, other = (weights_fingerprint(torch.nn.ParameterList([weight])) for weight in (before, after))
        return one != other

    assert all(changed(SAMPLED, at) for at in (0, 1, SAMPLED - 1))
    assert changed(10 * SAMPLED, 0)
    assert changed(10 * SAMPLED, 10 * SAMPLED - 1)
    # What it does not see, as its docstring says.
    assert not changed(10 * SAMPLED, 1)
