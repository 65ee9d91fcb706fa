import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.positions.attention_methods import attend_in_groups, group_masks, group_size


def tensors(length: int, heads: int, key_heads: int, batch: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, count, length, 6) for count in (heads, key_heads, key_heads)]
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def groups_of(mask: Tensor) -> list[list[int]]:
    """The groups that a causal block mask [T, T] has: where a token is the first that it sees."""
    starts = mask.int().argmax(dim=1).tolist()
    return [[t for t, start in enumerate(starts) if start == s] for s in sorted(set(starts))]


def test_the_groups_of_both_halves_of_the_heads():
    masks = group_masks(10, 5, group=4)
    assert torch.equal(masks, masks & torch.ones(10, 10).tril().bool())
    for head in range(2):
        assert groups_of(masks[head]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for head in range(2, 5):
        assert groups_of(masks[head]) == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    for length in (8, 10):
        for mask in group_masks(length, 2, group=4):
            for group in groups_of(mask):
                inside = mask[group][:, group]
                assert torch.equal(inside, torch.ones_like(inside).tril())


@pytest.mark.parametrize(
    ("group", "length", "size"),
    [(0.25, 4096, 1024), (0.25, 18, 5), (0.1, 30, 3), (0.25, 3, 2), (7, 100, 7), (64, 16, 64)],
)
def test_the_size_of_a_group(group: float, length: int, size: int):
    assert group_size(group, length) == size


CASES = [
    *((length, 0.25, 4, 4) for length in (1, 2, 3, 4, 16, 17, 18, 19, 23)),
    *((length, 4.0, 4, 2) for length in (2, 4, 6, 8, 15, 16)),
    *((20, group, 4, 1) for group in (2.0, 3.0, 5.0, 7.0, 20.0, 64.0)),
    (16, 0.25, 1, 1),
    (16, 0.25, 9, 3),
]


@pytest.mark.parametrize(("length", "group", "heads", "key_heads"), CASES)
def test_it_equals_attention_under_the_explicit_mask(length: int, group: float, heads: int, key_heads: int):
    inputs = tensors(length, heads, key_heads)
    found = attend_in_groups(*inputs, group=group, scale=0.3)
    mask = group_masks(length, heads, group=group)
    query, key, value = inputs
    expected = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.3, enable_gqa=heads != key_heads
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_default_scale_is_that_of_attention():
    query, key, value = tensors(8, 2, 2)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(attend_in_groups(query, key, value, group=8)[:, :1], expected[:, :1])


def rolled(length: int, size: int) -> Tensor:
    """What the shifted heads see in the form that rolls the tokens: causal in rolled order, in its groups."""
    order = torch.arange(length).roll(-(size // 2))
    place = torch.empty_like(order)
    place[order] = torch.arange(length)
    causal = place[:, None] >= place
    return causal & (place[:, None] // size == place // size)


def test_the_rolled_form_lets_the_start_see_the_end_and_this_one_does_not():
    """Erratum: LongLoRA's form without flash attention, LongQLoRA's default."""
    leaking = rolled(16, 4)
    future = torch.ones(16, 16).triu(1).bool()
    seen = (leaking & future).nonzero().tolist()
    assert seen == [[0, 14], [0, 15], [1, 14], [1, 15]]
    ours = group_masks(16, 2, group=4)[1]
    assert not (ours & future).any()
    # Away from the ends the two are the same.
    assert torch.equal(leaking[2:14], ours[2:14])


def test_impossible_groups_are_refused():
    for group in (0, 1, 1.5, -3, 2.5, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="shifted_sparse = "):
            group_size(group, 16)
    for other in ("4", None, True, [4]):
        with pytest.raises(UsageError, match="shifted_sparse is "):
            group_size(other, 16)
