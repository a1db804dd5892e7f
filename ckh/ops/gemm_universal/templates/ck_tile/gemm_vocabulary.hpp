// The vocabulary of a GEMM kernel's parameters, and CK Tile. The emitted translation unit includes this first, then
// states its own parameters as constants of namespace ckh::kernel, then includes the header of its interface.
#pragma once

#include "gemm_problem.hpp"
#include "gemm_words.hpp"
