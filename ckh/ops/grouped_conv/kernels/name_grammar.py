"""The grammar of convolution kernels' names: its tokens in order, each with the words for it in an error."""

from __future__ import annotations

from ckh.kernels.name_grammar import EPILOGUES, NUMBER, PIPELINE, NameGrammar, either, three_sizes
from ckh.kernels.scheduler import Scheduler
from ckh.ops.grouped_conv.kernels.variants import SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.problems import DTYPE_BYTES, Direction

OPERATION = "grouped_conv"
DIRECTION_TOKENS: dict[str, Direction] = {
    "fwd": Direction.FORWARD,
    "bwd_data": Direction.BWD_DATA,
    "bwd_weight": Direction.BWD_WEIGHT,
}
DEFAULT_VECTORS = (4, 8, 8)
_LAYOUTS = ("nwgc", "nhwgc", "ndhwgc", "gnwc", "gnhwc", "gndhwc", "ngcw", "ngchw", "ngcdhw")


_HEAD = (
    ("operation", OPERATION),
    ("direction", rf"_(?P<direction>{either([*DIRECTION_TOKENS, *Direction])})"),
    ("dtype", rf"_(?P<dtype>{either(DTYPE_BYTES)})"),
)
_FULL = (
    ("layout", rf"_(?P<layout>{either(_LAYOUTS)})"),
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{either(EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
    ("tile", three_sizes("tile")),
    ("waves", three_sizes("wave")),
    ("warp tile", three_sizes("warp_tile")),
    ("vector widths", rf"(?:_vec(?P<vector_a>{NUMBER})_(?P<vector_b>{NUMBER})_(?P<vector_c>{NUMBER}))?"),
    ("blocks per CU", rf"(?:_bpc(?P<bpc>{NUMBER}))?"),
    ("wave groups", rf"(?:_wg(?P<wg>{NUMBER}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
    ("specialization", rf"(?:_(?P<specialization>{either(SPECIALIZATIONS)}))?"),
    ("explicit GEMM", r"(?P<explicit_gemm>_explicit_gemm)?"),
    ("stream-K", rf"(?:_streamk_(?P<streamk>{either(STREAMK_STRATEGIES)}))?"),
    ("persistence", r"(?P<persistent>_persistent)?"),
    ("split image", r"(?P<si>_large_tensor)?"),
    ("padding", r"(?:_pad(?P<pad_m>[01])(?P<pad_n>[01])(?P<pad_k>[01]))?"),
    ("split of K", rf"(?:_splitk(?P<split_k>{NUMBER}))?"),
)
_SHORT = (
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("tile", three_sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"(?:_(?P<scheduler>{either(Scheduler)}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("split image", r"(?P<si>_si)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
)
# Where a full name has its layout, a short one has its number of dimensions.
GRAMMAR = NameGrammar("kernel name", _HEAD, _FULL, _SHORT)
