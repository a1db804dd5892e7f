// The vocabulary of the parameters of a GEMM kernel with further tensors, and CK Tile.
#pragma once

#include "ck_tile/ops/elementwise.hpp"
#include "gemm_words.hpp"
#include "multi_d_functions.hpp"
#include "multi_d_problem.hpp"
