"""Siblings of tiny-books: other sizes, encodings, trained lengths, amounts of pretraining and seeds.

All share its text, its BPE of 1024 entries and its optimizer, so they can be compared on the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lengthwise.files import build_once, cache_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOCABULARY = 1024
LENGTHS = 8
"""Learned position embeddings reach this many times the trained length, so that the model can be read there. Those
beyond the trained length keep their initial values: that is what learned positions are outside of training."""


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """One pretrained model; the defaults are tiny-books.

    Args:
        seed: of the weights and of the data order.
        encoding: rope is a Llama; nope a SmolLM3 without rope in any layer; alibi a BLOOM; learned a GPT-2. So the
            encodings differ in their blocks too.
        width: of the hidden states; heads are 32 wide.
        layers: blocks.
        length: tokens of a training window.
        steps: of 32 windows.
    """

    seed: int = 0
    encoding: Literal["rope", "nope", "alibi", "learned"] = "rope"
    width: int = 128
    layers: int = 4
    length: int = 128
    steps: int = 700

    @property
    def configuration(self) -> str:
        """Everything but the seed."""
        return f"{self.encoding}-{self.width}x{self.layers}-L{self.length}-{self.steps}"

    @property
    def name(self) -> str:
        """The configuration and the seed."""
        if self._is_tiny_books:
            return f"tiny-books-{self.steps}-seed{self.seed}"
        return f"tiny-{self.configuration}-seed{self.seed}"

    @property
    def _is_tiny_books(self) -> bool:
        return self.configuration == TinyModel(steps=self.steps).configuration

    def build(self) -> Path:
        """The folder of the model in the cache, pretrained at the first call; an interrupted one is continued.

        An ordinary transformers folder with `pretraining.json` beside the weights: settings, the loss of each step,
        the loss on held-out text.

        Raises:
            MissingError: the packages of the books are not installed.
        """
        from lengthwise_studies import pretraining

        folder = cache_dir() / "models" / self.name
        checkpoint = folder.with_name(f"{folder.name}.checkpoint")
        settings = pretraining.Pretraining(steps=self.steps, seed=self.seed, length=self.length)
        if not self._is_tiny_books:
            settings = replace(settings, warmup_steps=min(80, self.steps))

        def build(temporary: Path) -> None:
            name = "tiny-books" if self._is_tiny_books else self.name
            pretraining.train_on_books(temporary, settings, checkpoint, make=self.make, name=name)

        return build_once(folder, build, what=f"the model {self.name}")

    def make(self) -> PreTrainedModel:
        """The model with initial weights. tiny-books: SwiGLU of 352, RMSNorm, RoPE (theta 10000), tied head."""
        import transformers

        heads = self.width // 32
        common = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
        llama = {
            **common,
            "hidden_size": self.width,
            "intermediate_size": round(self.width * 2.75),
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": self.length,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": True,
        }
        gpt = {
            "n_embd": self.width,
            "n_layer": self.layers,
            "n_head": heads,
            "n_positions": LENGTHS * self.length,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        }
        bloom = {"hidden_size": self.width, "n_layer": self.layers, "n_head": heads}
        kind, settings = {
            "rope": (transformers.LlamaConfig, llama),
            "nope": (transformers.SmolLM3Config, {**llama, "no_rope_layers": [0] * self.layers}),
            "alibi": (transformers.BloomConfig, {**common, **bloom}),
            "learned": (transformers.GPT2Config, {**common, **gpt}),
        }[self.encoding]
        return transformers.AutoModelForCausalLM.from_config(kind(**settings))
