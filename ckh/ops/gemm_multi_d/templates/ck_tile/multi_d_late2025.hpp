// A GEMM kernel with further tensors in CK Tile's interface of late 2025.
#pragma once

#include "multi_d_types.hpp"
#include "gemm_universal_kernel.hpp"
#include "gemm_late2025_classes.hpp"
#include "gemm_grid.hpp"
#include "multi_d_arguments.hpp"
#include "gemm_looped.hpp"
#include "gemm_exports.hpp"
