// Failures of the HIP runtime as exceptions.
#pragma once

#include <hip/hip_runtime.h>

#include <stdexcept>
#include <string>

namespace ckh {

inline void check(hipError_t code, const char* what) {
    if (code != hipSuccess) throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(code));
}

}  // namespace ckh
