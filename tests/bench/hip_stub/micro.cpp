// The micro-kernels of ckh/bench/codegen/templates/micro on the GPU that stub.c is: right results, in plain C++, and the
// times of a GPU with constants given as macros: LAUNCH_NS, LATENCY_NS of a step, and GB/s or TFLOPS of all of it.
#include <cstring>

#include "check.hpp"

extern "C" {
void stub_kernel(const void* function, double ns);
void* stub_host(const void* device);
}

namespace ckh {

namespace kernel {
inline constexpr const char* label = "ckh-kernel:micro";
}

struct Problem {
    int64_t kind, blocks, steps, chunks, across, along;
};

struct Operands {
    const void* in;
    void *out, *workspace;
};

struct Work {
    Problem problem;
    Operands operands;
};

enum { copy, chase, read, read_lds, fp32, fp16, bf16, fp8, int8 };
constexpr int64_t threads = 256, chunk_words = 1024, lds_chunks = 4, depths[] = {2, 8, 8, 16, 16};

// Sums of a lane over a chunk's words.
inline uint32_t of_chunk(const uint32_t* in, int64_t chunk, int64_t thread) {
    const uint32_t* at = in + chunk * chunk_words + thread * 4;
    return at[0] + at[1] + at[2] + at[3];
}

// Small integers in the formats of the operands.
inline int64_t value(const void* in, int64_t kind, int64_t i) {
    if (kind == fp32) return int64_t(static_cast<const float*>(in)[i]);
    if (kind == fp16) return int64_t(static_cast<const _Float16*>(in)[i]);
    if (kind == fp8) {  // as on CDNA 3: 0x40 is 1, 0x48 is 2
        const uint8_t code = static_cast<const uint8_t*>(in)[i];
        const int64_t magnitude = code % 128 == 0 ? 0 : code % 128 == 0x40 ? 1 : 2;
        return code < 128 ? magnitude : -magnitude;
    }
    if (kind == int8) return static_cast<const int8_t*>(in)[i];
    const uint32_t bits = uint32_t(static_cast<const uint16_t*>(in)[i]) << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return int64_t(wide);
}

inline uint32_t product(const Problem& p, const void* in, int64_t lane) {
    const int64_t half = depths[p.kind - fp32] / 2, column = lane % 32;
    int64_t sum = 0;
    for (int64_t row = 0; row < 32; ++row)
        for (int64_t k = 0; k < 2 * half && row / 4 % 2 == lane / 32; ++k)
            sum += value(in, p.kind, (k / half * 32 + row) * half + k % half) *
                   value(in, p.kind, (64 + k / half * 32 + column) * half + k % half);
    return uint32_t(16 * (0 + 1 + 2 + 3) + 4 * p.steps * sum);
}

inline uint32_t output(const Problem& p, const uint32_t* in, int64_t block, int64_t thread) {
    uint32_t sum = 0;
    if (p.kind == copy) return in[block * threads + thread];
    if (p.kind == chase) {
        uint32_t at = uint32_t(thread);
        for (int64_t step = 0; thread == 0 && step < p.steps; ++step) at = in[at * 32];
        return at;
    }
    if (p.kind >= fp32) return product(p, in, thread % 64);
    if (p.kind == read_lds)
        for (int64_t chunk = 0; chunk < lds_chunks; ++chunk) sum += of_chunk(in, chunk, thread) * uint32_t(p.steps);
    for (int64_t step = 0; p.kind == read && step < p.steps; ++step)
        sum += of_chunk(in, (block * p.across + step * p.along) % p.chunks, thread);
    return sum;
}

inline void work(const Work* given) {
    const Problem& p = given->problem;
    const auto* in = static_cast<const uint32_t*>(stub_host(given->operands.in));
    auto* out = static_cast<uint32_t*>(stub_host(given->operands.out));
    for (int64_t i = 0; i < p.blocks * threads; ++i) out[i] = output(p, in, i / threads, i % threads);
}

inline double ns_of(const Problem& p) {
    const double bytes = double(p.blocks * p.steps) * 4096, flops = double(p.blocks * 4 * p.steps) * 4 * 2 * 32 * 32;
    if (p.kind == copy) return LAUNCH_NS;
    if (p.kind == chase) return double(p.steps) * LATENCY_NS;
    if (p.kind == read) return bytes / (p.along > 1 ? MEMORY_GB_S : L2_GB_S);
    if (p.kind == read_lds) return bytes * 4 / LDS_GB_S;
    const double tflops[] = {FP32_TFLOPS, FP16_TFLOPS, BF16_TFLOPS, FP8_TFLOPS, INT8_TFLOPS};
    return flops * double(depths[p.kind - fp32]) / tflops[p.kind - fp32] / 1e3;
}

inline const char* reason_unsupported(const Problem&) { return nullptr; }
inline int64_t workspace_bytes(const Problem&) { return 0; }
inline void zero_result(const Problem&, const Operands&, hipStream_t) {}
inline bool adds_to_result(const Problem&) { return false; }

inline Launch prepare(const Problem& p, const Operands& operands) {
    stub_kernel(reinterpret_cast<const void*>(work), ns_of(p));
    static Work works[256];
    static int next = 0;
    Work& made = works[next++ % 256];
    made = {p, operands};
    return launch_of(work, dim3{}, dim3{}, static_cast<const Work*>(&made));
}

}  // namespace ckh

#include "exports.hpp"
