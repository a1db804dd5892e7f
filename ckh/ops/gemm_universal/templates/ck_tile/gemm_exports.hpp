// What a matrix product is refused for, and the functions that its kernel exports. To be included after the header of an
// interface.
#pragma once

namespace ckh {

inline const char* reason_unsupported(const Problem& p) {
    if (p.m < 1 || p.n < 1 || p.k < 1 || p.split_k < 1) return "a size is not positive";
    if (const char* reason = interface_refuses(p)) return reason;
    return kernel_supports(p) ? nullptr : "CK Tile's IsSupportedArgument refuses it";
}

}  // namespace ckh

#include "exports.hpp"
