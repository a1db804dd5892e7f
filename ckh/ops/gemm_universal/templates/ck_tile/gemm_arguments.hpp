// What a launch of a GEMM kernel needs besides its arguments, in every interface of CK Tile.
#pragma once

#include "check.hpp"
#include "gemm_types.hpp"

namespace ckh {

inline int64_t workspace_bytes(const Problem&) { return 0; }

// Parts of K are added to what is there.
inline bool adds_to_result(const Problem& p) { return p.split_k > 1; }

}  // namespace ckh
