// The vocabulary of the parameters of a GEMM kernel with a shuffled B, and CK Tile.
#pragma once

#include "gemm_problem.hpp"
#include "gemm_words.hpp"

namespace ckh {

// The pipelines beside those of plain matrix products.
inline constexpr Pipeline preshufflev2{100}, flatmm{101};

}  // namespace ckh
