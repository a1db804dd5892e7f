// The vocabulary of a Stream-K GEMM kernel's parameters, and CK Tile.
#pragma once

#include "gemm_problem.hpp"
#include "streamk_barrier.hpp"
#include "gemm_words.hpp"
