// A kernel of CK Tile's flatmm, which reads a shuffled B too, in the interface of late 2025.
#pragma once

#include "ck_tile/ops/flatmm.hpp"
#include "gemm_plain.hpp"
#include "flatmm_late2025_classes.hpp"
#include "gemm_grid.hpp"
#include "flatmm_arguments.hpp"
#include "gemm_looped.hpp"
