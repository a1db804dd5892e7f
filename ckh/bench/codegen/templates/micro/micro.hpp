// Micro-kernels that measure a GPU's rates, with the functions that kernels export. CKH_CDNA is the generation of the
// target. Every kernel reads `in` and writes an integer per thread, which the caller compares with its own result.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "check.hpp"

namespace ckh {

namespace kernel {
[[gnu::used]] static const char label[] = "ckh-kernel:micro";
}

// Blocks of 256 threads; in chunks of 4 KiB the input's size, and those that step s of block b reads: b * across + s *
// along, modulo the size.
struct Problem {
    int64_t kind, blocks, steps, chunks, across, along;
};

struct Operands {
    const void* in;
    void *out, *workspace;
};

constexpr int32_t threads = 256, lds_chunks = 4;

// Its time is that of a launch.
__global__ void copy(const int32_t* in, int32_t* out, Problem) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    out[i] = in[i];
}

// Follows pointers, each in a line of 128 bytes: their number times the latency.
__global__ void chase(const int32_t* in, int32_t* out, Problem p) {
    int32_t at = threadIdx.x;
    if (at == 0)
        for (int64_t step = 0; step < p.steps; ++step) at = in[int64_t(at) * 32];
    out[threadIdx.x] = at;
}

__device__ inline int32_t sum_of(uint4 v) { return int32_t(v.x + v.y + v.z + v.w); }

// Adds up chunks: by how they follow each other from memory, or again and again from the L2 cache.
__global__ void read(const int32_t* in, int32_t* out, Problem p) {
    const auto* vectors = reinterpret_cast<const uint4*>(in);
    uint32_t chunk = uint32_t(blockIdx.x * p.across % p.chunks), sum = 0;
    const auto chunks = uint32_t(p.chunks), along = uint32_t(p.along % p.chunks);
#pragma unroll 8
    for (int64_t step = 0; step < p.steps; ++step) {
        sum += sum_of(vectors[chunk * threads + threadIdx.x]);
        chunk += along;
        chunk = chunk >= chunks ? chunk - chunks : chunk;
    }
    out[int64_t(blockIdx.x) * threads + threadIdx.x] = int32_t(sum);
}

// Adds up chunks of the LDS again and again.
__global__ void read_lds(const int32_t* in, int32_t* out, Problem p) {
    __shared__ uint4 lds[lds_chunks * threads];
    for (int32_t i = 0; i < lds_chunks; ++i) {
        lds[i * threads + threadIdx.x] = reinterpret_cast<const uint4*>(in)[i * threads + threadIdx.x];
    }
    __syncthreads();
    uint32_t sum = 0;
    for (int64_t step = 0; step < p.steps; ++step) {
#pragma unroll
        for (int32_t i = 0; i < lds_chunks; ++i) sum += sum_of(lds[i * threads + threadIdx.x]);
        asm volatile("" ::: "memory");  // the compiler must not keep what it read
    }
    out[int64_t(blockIdx.x) * threads + threadIdx.x] = int32_t(sum);
}

// Multiplies A and B, whose registers are those of `in`, into four accumulators that begin with 0, 1, 2 and 3.
template <class Instruction>
__global__ void multiply(const int32_t* in, int32_t* out, Problem p) {
    using Factor = typename Instruction::Factor;
    using Sums = typename Instruction::Sums;
    constexpr int32_t rows = sizeof(Sums) / 4, sets = 4;
    const uint32_t lane = threadIdx.x % 64;
    const auto* factors = reinterpret_cast<const Factor*>(in);
    const Factor a = factors[lane], b = factors[64 + lane];
    Sums sums[sets];
    for (int32_t set = 0; set < sets; ++set)
        for (int32_t row = 0; row < rows; ++row) sums[set][row] = set;
    for (int64_t step = 0; step < p.steps; ++step)
        for (int32_t set = 0; set < sets; ++set) sums[set] = Instruction::multiply(a, b, sums[set]);
    int32_t sum = 0;
    for (int32_t set = 0; set < sets; ++set)
        for (int32_t row = 0; row < rows; ++row) sum += int32_t(sums[set][row]);
    out[int64_t(blockIdx.x) * threads + threadIdx.x] = sum;
}

template <class Element, int32_t Count>
using Vector = Element __attribute__((ext_vector_type(Count)));

#define CKH_INSTRUCTION(NAME, FACTOR, SUM, CALL)                      \
    struct NAME {                                                     \
        using Factor = FACTOR;                                        \
        using Sums = Vector<SUM, 16>;                                 \
        __device__ static Sums multiply(Factor a, Factor b, Sums c) { \
            return CALL;                                              \
        }                                                             \
    };

CKH_INSTRUCTION(Fp32, float, float, __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, 0, 0, 0))
using Half4 = Vector<_Float16, 4>;
using Short4 = Vector<short, 4>;
using Half8 = Vector<_Float16, 8>;
using Bfloat8 = Vector<__bf16, 8>;
using Int4 = Vector<int, 4>;
using Int8 = Vector<int, 8>;
#if CKH_CDNA >= 4
CKH_INSTRUCTION(Fp16, Half8, float, __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, 0, 0, 0))
CKH_INSTRUCTION(Bf16, Bfloat8, float, __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0))
CKH_INSTRUCTION(Fp8, Int8, float, __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, 0, 0, 0, 0x7f7f7f7f, 0, 0x7f7f7f7f))
CKH_INSTRUCTION(I8, Int4, int, __builtin_amdgcn_mfma_i32_32x32x32_i8(a, b, c, 0, 0, 0))
#else
CKH_INSTRUCTION(Fp16, Half4, float, __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0))
CKH_INSTRUCTION(Bf16, Short4, float, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0))
#endif
#if CKH_CDNA == 3
CKH_INSTRUCTION(Fp8, long, float, __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, 0, 0, 0))
CKH_INSTRUCTION(I8, long, int, __builtin_amdgcn_mfma_i32_32x32x16_i8(a, b, c, 0, 0, 0))
#endif

// By the kinds of problems (ckh/bench/isolated/micro.py).
inline auto function_of(int64_t kind) {
    using Function = void (*)(const int32_t*, int32_t*, Problem);
    constexpr Function functions[] = {copy,           chase,          read,           read_lds,
                                      multiply<Fp32>, multiply<Fp16>, multiply<Bf16>,
#if CKH_CDNA >= 3
                                      multiply<Fp8>,  multiply<I8>,
#endif
    };
    return functions[kind];
}

inline const char* reason_unsupported(const Problem&) { return nullptr; }
inline int64_t workspace_bytes(const Problem&) { return 0; }
inline void zero_result(const Problem&, const Operands&, hipStream_t) {}
inline bool adds_to_result(const Problem&) { return false; }

inline Launch prepare(const Problem& p, const Operands& operands) {
    return launch_of(function_of(p.kind), dim3(uint32_t(p.blocks)), dim3(threads),
                     static_cast<const int32_t*>(operands.in), static_cast<int32_t*>(operands.out), p);
}

}  // namespace ckh

#ifndef __HIP_DEVICE_COMPILE__
#include "exports.hpp"
#endif
