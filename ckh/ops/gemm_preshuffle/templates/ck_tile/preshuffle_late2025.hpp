// A GEMM kernel with a shuffled B in CK Tile's interface of late 2025.
#pragma once

#include "gemm_plain.hpp"
#include "gemm_universal_kernel.hpp"
#include "preshuffle_classes.hpp"
#include "gemm_grid.hpp"
#include "gemm_host_arguments.hpp"
#include "gemm_looped.hpp"
