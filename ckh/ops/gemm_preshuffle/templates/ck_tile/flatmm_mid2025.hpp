// A kernel of CK Tile's flatmm, which reads a shuffled B, in the interface of mid-2025.
#pragma once

#include "flatmm_mid2025_pipeline.hpp"
#include "gemm_plain.hpp"
#include "flatmm_mid2025_classes.hpp"
#include "gemm_grid.hpp"
#include "flatmm_arguments.hpp"
#include "gemm_looped.hpp"
