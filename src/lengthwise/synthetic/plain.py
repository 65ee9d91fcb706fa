"""One small Transformer as ordinary code: what each model of a `StackedTransformer` equals."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise.synthetic.transformer import Architecture, StackedTransformer, causal_bias


class PlainTransformer(nn.Module):
    """One model with one parameter for each weight; the same arithmetic as the stack's.

    Args:
        architecture: what it is.
        seed: of its initial weights, which are those of the stack's model of this seed.
    """

    def __init__(self, architecture: Architecture, seed: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoding = architecture.build_encoding()
        initial = StackedTransformer(architecture, [seed]).weights()
        # A parameter's name must not hold a dot.
        self.w = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(w[0].detach().clone()) for name, w in initial.items()}
        )

    def flat(self) -> Tensor:
        """All weights in one row [P], in the stack's order."""
        return torch.cat([weight.detach().flatten() for weight in self._in_order()])

    def value(self, tokens: Tensor, last: Tensor, positions: Tensor | None = None) -> Tensor:
        """One number for each sample [B], read off the token at index `last` [B]; tokens are [B, T]."""
        hidden = self.body(tokens, positions)
        read = _norm(hidden[torch.arange(len(tokens)), last])
        inner = (read @ self.w["value_up"] + self.w["value_up_bias"]).relu()
        return (inner @ self.w["value_down"] + self.w["value_down_bias"]).squeeze(-1)

    def logits(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits of the next token [B, T, classes]."""
        return _norm(self.body(tokens, positions)) @ self.w["tokens"] + self.w["tokens_bias"]

    def body(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Residual stream after the last block [B, T, D]."""
        batch, length = tokens.shape
        if positions is None:
            positions = torch.arange(length).expand(batch, length)
        positions = positions.unsqueeze(0)
        own = {
            name.removeprefix("encoding_"): weight.unsqueeze(0)
            for name, weight in self.w.items()
            if name.startswith("encoding_")
        }
        x = self.w["embedding"][tokens]
        added = self.encoding.embed(own, positions)
        if added is not None:
            x = x + added[0].to(x.dtype)
        bias = causal_bias(length, x)
        relative = self.encoding.bias(own, positions)
        if relative is not None:
            bias = bias + relative[0].to(x.dtype)
        for layer in range(self.architecture.layers):
            x = x + self._attention(layer, _norm(x), positions, bias)
            inner = (_norm(x) @ self.w[f"{layer}_up"] + self.w[f"{layer}_up_bias"]).relu()
            x = x + inner @ self.w[f"{layer}_down"] + self.w[f"{layer}_down_bias"]
        return x

    def _attention(self, layer: int, x: Tensor, positions: Tensor, bias: Tensor) -> Tensor:
        heads = self.architecture.heads
        parts = (x @ self.w[f"{layer}_qkv"]).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        query = self.encoding.rotate(query.unsqueeze(0), positions)[0]
        key = self.encoding.rotate(key.unsqueeze(0), positions)[0]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return mixed.transpose(1, 2).flatten(-2) @ self.w[f"{layer}_out"]

    def _in_order(self) -> list[Tensor]:
        return [self.w[name.replace(".", "_")] for name in self.architecture.shapes()]


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])
