"""Layers of ViT, CLIP and Whisper: transformers that process whole images, texts or audio clips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.shapes.layers import Convolution, Layer, Matmul, Scaling
from ckh.shapes.models.decoders import Ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.shapes.models.config import Config
    from ckh.shapes.models.decoders import Precision
    from ckh.shapes.run_options import RunOptions

_MELS = 80  # of Whisper's spectrograms, if a file does not state it
_POSITIONS = 1500
_TOWERS = ("text_config", "vision_config")


@dataclass(frozen=True, slots=True)
class _Block:
    """A transformer's layers: `hidden` columns, `intermediate` between its two products, on `ranks`."""

    prefix: str
    hidden: int
    intermediate: int
    heads: int
    layers: int
    precision: Precision
    ranks: Ranks
    where: str

    def product(self, name: str, m: int, n: int, k: int, count: int | None = None) -> Layer:
        """A matrix product with a weight."""
        (scheme,) = self.precision.schemes((name,), (0,))
        shape = scheme.unread or Matmul(m, n, k, scheme.dtype, scaling=scheme.scaling)
        return Layer(self.prefix + name, shape, self.layers if count is None else count, self.where)

    def attention(self, rows: int, name: str = "") -> Iterator[Layer]:
        """Self-attention of rows."""
        share = self.ranks.share(self.heads, "num_attention_heads") * (self.hidden // self.heads)
        yield self.product(f"{name}qkv", rows, 3 * share, self.hidden)
        yield self.product(f"{name}o", rows, self.hidden, share)

    def crossed(self, rows: int, others: int) -> Iterator[Layer]:
        """Cross-attention of rows to others."""
        share = self.ranks.share(self.heads, "num_attention_heads") * (self.hidden // self.heads)
        yield self.product("cross_q", rows, share, self.hidden)
        yield self.product("cross_kv", others, 2 * share, self.hidden)
        yield self.product("cross_o", rows, self.hidden, share)

    def feed_forward(self, rows: int) -> Iterator[Layer]:
        """The two products of a feed-forward part without a gate."""
        share = self.ranks.share(self.intermediate, "the intermediate size")
        yield self.product("fc1", rows, share, self.hidden)
        yield self.product("fc2", rows, self.hidden, share)


def _block(config: Config, prefix: str, precision: Precision, wanted: RunOptions) -> _Block:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    intermediate = config.size("intermediate_size", 4 * hidden)
    layers = config.size("num_hidden_layers")
    return _Block(prefix, hidden, intermediate, heads, layers, precision, Ranks(wanted.tp), config.where)


def _image_layers(config: Config, block: _Block, batch: int) -> Iterator[Layer]:
    """Patch embedding by a convolution, then a transformer's layers on the patches and one more token."""
    size, patch = config.size("image_size"), config.size("patch_size")
    if size < patch:
        raise DataError(f"{config.where}: image_size {size} is below patch_size {patch}", code="impossible-problem")
    patches = Convolution(
        batch,
        config.size("num_channels", 3),
        block.hidden,
        (size, size),
        (patch, patch),
        stride=(patch, patch),
        dtype=block.precision.base,
    )
    yield Layer(f"{block.prefix}patches", patches, 1, config.where)
    rows = batch * ((size // patch) ** 2 + 1)
    yield from block.attention(rows)
    yield from block.feed_forward(rows)


def vision_layers(config: Config, precision: Precision, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of a vision transformer for each number of images."""
    block = _block(config, "", precision, wanted)
    for batch in wanted.batch:
        yield from _image_layers(config, block, batch)


def clip_layers(config: Config, precision: Precision, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of CLIP's two towers for each number of images and texts."""
    for name in _TOWERS:
        if not isinstance(config.values.get(name), dict):
            raise DataError(f"{config.where}: {name} is missing, which CLIP models have", code="missing-field")
    text, vision = (replace(config, values=config.values[name]) for name in _TOWERS)
    texts, images = _block(text, "text_", precision, wanted), _block(vision, "vision_", precision, wanted)
    positions, projection = text.size("max_position_embeddings", 77), config.size("projection_dim", 512)
    for batch in wanted.batch:
        yield from texts.attention(batch * positions)
        yield from texts.feed_forward(batch * positions)
        yield from _image_layers(vision, images, batch)
        for block in (texts, images):
            yield block.product("projection", batch, projection, block.hidden, 1)


def whisper_layers(config: Config, precision: Precision, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of Whisper: the encoder for each number of clips, the decoder for each number of its tokens.

    The convolutions over time are two-dimensional ones of height 1.
    """
    hidden, ranks = config.size("d_model"), Ranks(wanted.tp)
    encoder, decoder = (
        _Block(
            f"{part}_",
            hidden,
            config.size(f"{part}_ffn_dim"),
            config.size(f"{part}_attention_heads"),
            config.size(f"{part}_layers"),
            precision,
            ranks,
            config.where,
        )
        for part in ("encoder", "decoder")
    )
    positions = config.size("max_source_positions", _POSITIONS)
    vocabulary = config.size("vocab_size")
    for batch in wanted.batch:
        channels = config.size("num_mel_bins", _MELS)
        for number, (inputs, stride) in enumerate(((channels, 1), (hidden, 2)), 1):
            spatial = (1, 2 * positions)
            shape = Convolution(batch, inputs, hidden, spatial, (1, 3), stride=(1, stride), pad=(0, 1))
            yield Layer(f"conv{number}", replace(shape, dtype=precision.base), 1, config.where)
        rows = batch * positions
        yield from encoder.attention(rows)
        yield from encoder.feed_forward(rows)
        for tokens in wanted.tokens:
            yield from decoder.attention(tokens)
            yield from decoder.crossed(tokens, rows)
            yield from decoder.feed_forward(tokens)
    for tokens in wanted.tokens:
        shape_out = Matmul(tokens, vocabulary, hidden, precision.base, scaling=Scaling.NONE)
        yield Layer("proj_out", shape_out, 1, config.where)
