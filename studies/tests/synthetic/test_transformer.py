import pytest
import torch
from torch import Tensor

from lengthwise_studies.synthetic.encodings import ENCODINGS
from lengthwise_studies.synthetic.tasks import encode
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

SEEDS = (3, 4)


def _model(encoding: str, **heads) -> StackedTransformer:
    architecture = Architecture(
        vocabulary=5, encoding=encoding, table=16, width=16, heads=2, hidden=24, **(heads or {"tokens": 5})
    )
    return StackedTransformer(architecture, SEEDS).double()


def _tokens(length: int = 9, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 5, (len(SEEDS), batch, length), generator=generator)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_position_sees_what_comes_after_it(encoding):
    model, tokens = _model(encoding), _tokens()
    changed = tokens.clone()
    changed[..., 5:] = (changed[..., 5:] + 1) % 5
    before, after = model.heads(tokens)[0], model.heads(changed)[0]
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert not torch.allclose(before[:, :, 5:], after[:, :, 5:])


def test_the_number_is_read_off_the_last_token_whatever_follows_it():
    model = _model("learned", value=True)
    tokens, last = _tokens(), torch.tensor([[4, 8, 0], [2, 7, 5]])
    padded = tokens.masked_fill(torch.arange(9) > last.unsqueeze(-1), 0)
    values = model.value(padded, last)
    assert values.shape == (2, 3)
    assert torch.equal(values, model.value(tokens, last))
    for sample in range(3):
        end = last[0, sample]
        alone = model.value(tokens[:, sample, None, : end + 1], end.expand(2, 1))
        assert torch.allclose(values[0, sample], alone[0, 0], atol=1e-10)


def test_without_markers_nope_cannot_tell_strings_of_ones_apart():
    model = StackedTransformer(Architecture(vocabulary=4, value=True), [0]).double()

    def bare(length: int) -> Tensor:
        return model.value(torch.ones(1, 1, length, dtype=torch.long), torch.tensor([[length - 1]]))

    def marked(length: int) -> Tensor:
        tokens, last = encode(torch.ones(1, length, dtype=torch.long), torch.tensor([length]))
        return model.value(tokens[None], last[None])

    assert torch.allclose(bare(3), bare(30), atol=1e-12)
    assert (marked(3) - marked(30)).abs() > 1e-3
