// Failures of the HIP runtime as exceptions, launches, and a kernel that does nothing.
#pragma once

#include <hip/hip_runtime.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

namespace ckh {

inline void check(hipError_t code, const char* what) {
    if (code != hipSuccess) throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(code));
}

// Starts a kernel whose arguments are made, as often as it is called.
using Launch = std::function<void(hipStream_t)>;

// In a unit of several kernels, a type that tells one kernel's functions from another's (unit.py).
template <class Kernel>
using OwnKernel = Kernel;

// Arguments may be large: those of backward data are 100 kB. They are kept in one place, and not copied to be launched.
template <class... Arguments>
Launch launch_of(void (*function)(Arguments...), dim3 grid, dim3 block, const Arguments&... arguments) {
    const auto kept = std::make_shared<std::tuple<Arguments...>>(arguments...);
    return [=](hipStream_t stream) {
        const auto start = [&](auto&... each) {
            void* addresses[] = {&each...};
            return hipLaunchKernel(reinterpret_cast<const void*>(function), grid, block, addresses, 0, stream);
        };
        check(std::apply(start, *kept), "hipLaunchKernel");
    };
}

// Its time is what launching takes.
static __global__ void empty_kernel(int) {}

}  // namespace ckh
