// What a convolution is refused for, and the functions that its kernel exports.
#pragma once

#include "types.hpp"

namespace ckh {

inline const char* reason_unsupported(const Problem& p) {
    if (p.g < 1 || p.c % p.g || p.k % p.g) return "C and K must be divisible by G";
    if (kernel::ndim_spatial == 2 && (p.di != 1 || p.z != 1)) return "a 2D kernel cannot run a 3D problem";
    if (const char* reason = interface_refuses(p)) return reason;
    return kernel_supports(p) ? nullptr : "CK Tile's IsSupportedArgument refuses it";
}

}  // namespace ckh

#include "exports.hpp"
