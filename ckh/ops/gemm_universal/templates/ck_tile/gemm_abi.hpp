// The functions that a GEMM kernel of CK Tile's interface of mid-2025 exports.
#pragma once

#include "gemm_mid2025.hpp"
#include "gemm_exports.hpp"
