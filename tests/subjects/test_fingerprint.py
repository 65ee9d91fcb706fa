from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lengthwise.subjects import load
from lengthwise.subjects.fingerprints import SAMPLED, config_fingerprint, weights_fingerprint
from lengthwise.testing import save_tiny_model, tiny_llama


def test_the_same_folder_gives_the_same_fingerprint_and_a_copy_too(tmp_path: Path):
    one = load(str(save_tiny_model(tmp_path / "one"))).fingerprint()
    again = load(str(tmp_path / "one")).fingerprint()
    copy = load(str(save_tiny_model(tmp_path / "copy"))).fingerprint()
    assert one == again == copy
    assert set(one) == {"weights", "config", "tokenizer"}


def test_other_weights_change_the_weights_alone(tmp_path: Path):
    one = load(str(save_tiny_model(tmp_path / "one"))).fingerprint()
    other = load(str(save_tiny_model(tmp_path / "other", seed=1))).fingerprint()
    assert one["weights"] != other["weights"]
    assert (one["config"], one["tokenizer"]) == (other["config"], other["tokenizer"])


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
