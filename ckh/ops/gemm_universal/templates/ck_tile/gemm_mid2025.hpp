// A GEMM kernel in CK Tile's interface of mid-2025.
#pragma once

#include "gemm_plain.hpp"
#include "gemm_universal_kernel.hpp"
#include "gemm_mid2025_classes.hpp"
#include "gemm_grid.hpp"
#include "gemm_host_arguments.hpp"
#include "gemm_looped.hpp"
