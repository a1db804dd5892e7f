// The functions that a GEMM kernel of CK Tile's current interface exports.
#pragma once

#include "gemm_current.hpp"
#include "gemm_exports.hpp"
