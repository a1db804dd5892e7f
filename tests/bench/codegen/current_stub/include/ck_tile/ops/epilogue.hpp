// Stub.
#pragma once

#include "ck_tile/ops/epilogue/cshuffle_epilogue.hpp"
