"""A model that writes down what it is given, and whose losses say which token was the label.

Words are numbers and a text counts up. The logits depend on the newest token alone: `SURE` for the next number and 0
for every other token; after BOS 0 for all. So `nats(token, label)` is the loss of any label after any token, and a
label that is not the text's own next token shows in every sum of losses.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lengthwise.checkpoints.hidden import cache_among
from lengthwise.subjects import LoadedModel
from lengthwise.testing import tiny_llama
from lengthwise.text import as_corpus

UNKNOWN, BOS, SURE = 0, 1, 5.0
DOCUMENTS, TOKENS = 2, 320
"""Documents, and the tokens of each; no token comes twice."""
VOCABULARY = 2 + DOCUMENTS * TOKENS
TEXT = as_corpus(
    [" ".join(f"w{2 + part * TOKENS + word}" for word in range(TOKENS)) for part in range(DOCUMENTS)]
)


def nats(token: int, label: int) -> float:
    """The loss of a label after a token."""
    if token == BOS:
        return math.log(VOCABULARY)
    return math.log(VOCABULARY - 1 + math.exp(SURE)) - SURE * (label == token + 1)


def numbers_tokenizer(*, adds_bos: bool) -> PreTrainedTokenizerFast:
    """Word wN has the id N. With `adds_bos` a text begins with BOS by itself."""
    words = {"<unk>": UNKNOWN, "<s>": BOS} | {f"w{number}": number for number in range(2, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    return begins_with_bos(own) if adds_bos else own


def begins_with_bos(tokenizer: Any) -> Any:
    """The tokenizer, which from now on puts BOS before a text."""
    assert tokenizer.bos_token_id == BOS
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


def counting_model(tokenizer: Any, name: str = "counting") -> LoadedModel:
    """A Llama with a cache and rope whose layer adds nothing: one-hot embeddings, and a head that adds one."""
    llama = tiny_llama(
        vocab_size=VOCABULARY,
        hidden_size=VOCABULARY,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=4,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=None,
        max_position_embeddings=64,
        rms_norm_eps=1e-12,
    )
    layer: Any = llama.model.layers[0]
    with torch.no_grad():
        llama.get_input_embeddings().weight.copy_(torch.eye(VOCABULARY))
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        # The norm makes sqrt(V) of a one.
        step = torch.diag(torch.ones(VOCABULARY - 1), -1) * SURE / math.sqrt(VOCABULARY)
        step[:, BOS], step[BOS] = 0, 0
        llama.get_output_embeddings().weight.copy_(step)
    return LoadedModel(llama, tokenizer, name, "memory")


@dataclass(frozen=True)
class Pass:
    """What one forward pass was given."""

    ids: Tensor
    """[B, T]."""
    before: int
    """Tokens in the cache."""
    real: Tensor
    """[B, T], False where padding is."""
    sees: Tensor
    """[B, T]: how many tokens each attends to, itself among them."""
    positions: Tensor
    """[B, T], as the rotary embedding has them, so the model's own defaults too."""


class Recorder:
    """Keeps every forward pass of a model, whatever function reads it, while it is `on`.

    So what proves a model before it is measured, on random tokens, can be left out.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.passes: list[Pass] = []
        self.on = False
        self._given: dict[str, Any] = {}
        model.model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.model.model.rotary_emb.register_forward_pre_hook(self._turned, with_kwargs=True)

    def _before(self, _model: Any, unnamed: tuple[Any, ...], given: dict[str, Any]) -> None:
        assert len(unnamed) <= 1
        cache = cache_among(given)
        self._given = {
            "ids": unnamed[0] if unnamed else given["input_ids"],
            "mask": given.get("attention_mask"),
            "before": 0 if cache is None else int(cache.get_seq_length()),
        }

    def _turned(self, _rope: Any, unnamed: tuple[Any, ...], given: dict[str, Any]) -> None:
        if not self.on:
            return
        ids, mask, before = (self._given[name] for name in ("ids", "mask", "before"))
        positions = given["position_ids"] if "position_ids" in given else unnamed[1]
        rows, tokens = ids.shape
        real, sees = torch.ones_like(ids, dtype=torch.bool), before + 1 + torch.arange(tokens)
        if mask is not None and mask.dim() == 4:
            # Added to the scores: 0 where a token attends.
            sees = (mask[:, 0] == 0).sum(dim=2)
        elif mask is not None:
            real, sees = mask[:, -tokens:].bool(), mask.long().cumsum(dim=1)[:, -tokens:]
        self.passes.append(
            Pass(ids.clone(), before, real, sees.expand(rows, -1), positions.expand(rows, -1).clone())
        )
