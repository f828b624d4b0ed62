"""How many floating-point operations a training step needs, counted from its layout.

Counted are the matrix products, 2·m·n·k each, over the rows that the compact layout computes: keys
and values of every distinct (token, position) row, queries of the rows that ask, scores of every
pair of them, and the attention output, feed-forward and unembedding of the rows that go on. The
backward pass has two products for each one of the forward. Left out are softmax, norms, loss and
optimizer, and what are sums of products: the mixing of up to `FEW` values, the scores of one query.
"""

from __future__ import annotations

from mechint.config import ModelConfig
from mechint.models.attention import FEW
from mechint.models.rows import BlockRows, Layout


def flops(config: ModelConfig, layout: Layout) -> int:
    """Floating-point operations of forward and backward of one model on a compact layout."""
    assert layout.blocks is not None
    rows, total = layout.tokens.shape[-1], 0
    for block in layout.blocks:
        total += _block(config, block, rows)
        rows = _rows_out(block, rows)
    reads = rows if layout.reads is None else layout.reads.shape[-1]
    return 3 * (total + 2 * reads * config.d_model * config.d_vocab_out)


def _block(config: ModelConfig, block: BlockRows, rows: int) -> int:
    """Of the forward through one block that is given `rows`."""
    assert config.d_head is not None and config.d_mlp is not None
    width = config.n_heads * config.d_head
    asking = rows if block.query_rows is None else block.query_rows.shape[-1]
    out = _rows_out(block, rows)
    queries, keys = block.queries.shape[-1], block.keys.shape[-1]
    pairs = block.queries.shape[-2] * queries * keys
    scores = asking * rows if block.table else pairs
    scores = scores if block.bags is None else 0
    mixed = pairs if queries * keys > FEW else 0
    mlp = 0 if config.attn_only else 2 * out * config.d_model * config.d_mlp
    return 2 * ((asking + 2 * rows + out) * config.d_model * width + (scores + mixed) * width + mlp)


def _rows_out(block: BlockRows, rows: int) -> int:
    return rows if block.residual is None else block.residual.shape[-1]
