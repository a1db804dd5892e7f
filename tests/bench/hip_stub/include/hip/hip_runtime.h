// The part of the HIP runtime's C++ interface that ckh's headers for GPU kernels use, for a compiler of the host.
#pragma once

#include <cstddef>
#include <cstdint>

struct dim3 {
    uint32_t x = 1, y = 1, z = 1;
};
using hipError_t = int;
using hipEvent_t = double*;
using hipStream_t = void*;
inline constexpr hipError_t hipSuccess = 0;

extern "C" {
hipError_t hipDeviceSynchronize();
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
const char* hipGetErrorString(hipError_t code);
hipError_t hipGetLastError();
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream);
hipError_t hipMemsetAsync(void* to, int byte, size_t size, hipStream_t stream);
}
