// The part of the HIP runtime's C++ interface that ckh's headers for GPU kernels use, for a compiler of the host.
#pragma once

#include <cstddef>
#include <cstdint>

#define __global__
#define __device__

struct dim3 {
    uint32_t x = 1, y = 1, z = 1;
    dim3() = default;
    dim3(uint32_t size) : x(size) {}
};
using hipError_t = int;
using hipEvent_t = double*;
using hipGraph_t = struct Graph*;
using hipGraphExec_t = struct GraphExec*;
using hipStream_t = struct Stream*;
inline constexpr hipError_t hipSuccess = 0;
inline constexpr unsigned hipStreamNonBlocking = 1;
inline constexpr int hipStreamCaptureModeRelaxed = 2;

extern "C" {
hipError_t hipDeviceSynchronize();
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
const char* hipGetErrorString(hipError_t code);
hipError_t hipGetLastError();
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream);
hipError_t hipMemsetAsync(void* to, int byte, size_t size, hipStream_t stream);
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamSynchronize(hipStream_t stream);
void* stub_host(const void* device);
}

// Threads, one after another; pointers that kernels get are of the device.
struct Place {
    uint32_t x = 0;
};
inline thread_local Place blockIdx, threadIdx;

template <class T>
T* on_host(T* device) {
    return static_cast<T*>(stub_host(device));
}
template <class T>
T on_host(T value) {
    return value;
}

template <class T>
void atomicAdd(T* sum, T value) {
    *sum += value;
}

template <class... Parameters>
void hipLaunchKernelGGL(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t, hipStream_t,
                        Parameters... arguments) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(on_host(arguments)...);
}
