// A direct forward convolution, one thread of "the GPU" that stub.c is, with our ABI. Compiled with -DELEMENT=, a type
// below, and what else it does: statements BEFORE and AFTER the work, WORKSPACE bytes, SKIP, a condition on products
// that are left out, and SHORT, the ns that it takes if it can be timed like ckh's own kernels, else 0: a launch then
// takes 4000 ns, and GRAPH ns in a graph, 0 if there are none.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* stub_host(const void* device);
int stub_launch(void);
void stub_arm(const char* faults);
void stub_pass(double ms);
int hipMemset(void* to, int byte, size_t size);
}

struct Problem {
    int64_t n, c, k, g, di, hi, wi, z, y, x, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w, do_, ho, wo;
};

struct fp32 {
    float value;
    operator float() const { return value; }
    static fp32 of(float value) { return {value}; }
};

struct fp16 {
    _Float16 value;
    operator float() const { return float(value); }
    static fp16 of(float value) { return {static_cast<_Float16>(value)}; }
};

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// The upper half of a float; made by rounding to nearest even, or by cutting the lower half off.
template <bool Cut>
struct bfloat {
    uint16_t bits;
    operator float() const {
        const uint32_t wide = uint32_t(bits) << 16;
        float value;
        memcpy(&value, &wide, 4);
        return value;
    }
    static bfloat of(float value) {
        const uint32_t wide = bits_of(value);
        return {uint16_t((wide + (Cut ? 0 : 0x7fff + ((wide >> 16) & 1))) >> 16)};
    }
};
using bf16 = bfloat<false>;
using bf16_cut = bfloat<true>;

static const char* reason = "";
static int64_t flush_bytes = 0;
static void* flush_buffer = nullptr;
static bool timing = false;

static float sum(const Problem& p, const ELEMENT* a, const ELEMENT* b, int64_t n, int64_t h, int64_t w, int64_t k) {
    const int64_t channels = p.c / p.g, group = k / (p.k / p.g);
    float total = 0;
    for (int64_t y = 0; y < p.y; ++y)
        for (int64_t x = 0; x < p.x; ++x) {
            const int64_t row = h * p.stride_h - p.pad_h + y * p.dilation_h;
            const int64_t column = w * p.stride_w - p.pad_w + x * p.dilation_w;
            if (row < 0 || row >= p.hi || column < 0 || column >= p.wi) continue;
            const ELEMENT* pixel = a + ((n * p.hi + row) * p.wi + column) * p.c + group * channels;
            const ELEMENT* tap = b + ((k * p.y + y) * p.x + x) * channels;
            for (int64_t c = 0; c < channels; ++c)
                if (!(SKIP)) total += float(pixel[c]) * float(tap[c]);
        }
    return total;
}

static int launch(const Problem& p, void* device_a, void* device_b, void* device_out, void* device_workspace) {
    auto* a = static_cast<ELEMENT*>(stub_host(device_a));
    auto* b = static_cast<ELEMENT*>(stub_host(device_b));
    auto* out = static_cast<ELEMENT*>(stub_host(device_out));
    auto* workspace = static_cast<char*>(stub_host(device_workspace));
    const int64_t size = p.n * p.ho * p.wo * p.k;
    if (const int code = stub_launch()) {
        reason = "launch: illegal memory access";
        return code;
    }
    BEFORE;
    for (int64_t i = 0; i < size; ++i)
        out[i] = ELEMENT::of(
            sum(p, a, b, i / (p.k * p.wo * p.ho), i / (p.k * p.wo) % p.ho, i / p.k % p.wo, i % p.k));
    AFTER;
    static_cast<void>(workspace);
    return 0;
}

struct Operands {
    void *a, *b, *out, *workspace;
};

extern "C" {
int32_t ckh_abi_version(void) { return 2; }
int32_t ckh_operand_count(void) { return 4; }
const char* ckh_name(void) { return "stub kernel"; }
const char* ckh_error(void) { return reason; }
const char* ckh_unsupported(const Problem*) { return nullptr; }
int64_t ckh_workspace_bytes(const Problem*) { return WORKSPACE; }
void ckh_set_flush(void* buffer, int64_t bytes) { flush_buffer = buffer, flush_bytes = bytes; }
int32_t ckh_run(const Problem* p, const Operands* operands) {
    timing = false;
    return launch(*p, operands->a, operands->b, operands->out, operands->workspace);
}
// Every sample is what the kernel says it takes, 30 ms, and a nanosecond more for each byte that it flushes.
int32_t ckh_time(const Problem* p, const Operands* operands, int32_t loops, int32_t samples, double* ns) {
    timing = true;
    for (int32_t i = 0; i < samples; ++i) {
        if (flush_bytes && hipMemset(flush_buffer, i, size_t(flush_bytes))) return 2;
        for (int32_t j = 0; j < loops; ++j)
            if (const int code = launch(*p, operands->a, operands->b, operands->out, operands->workspace)) return code;
        ns[i] = 30e6 + double(flush_bytes);
    }
    return 0;
}
#if SHORT
int32_t ckh_time_by(int32_t how, const Problem* p, const Operands* operands, int32_t count, int32_t first,
                    int32_t loops, int32_t samples, double* ns) {
    const bool by_graph = how & 1, is_empty = how & 2;
    if (by_graph && GRAPH == 0) return 801;
    timing = true;
    for (int64_t i = samples; !is_empty && i < count && i < int64_t(loops) * samples; ++i) {
        const Operands& used = operands[(first + i) % count];
        if (const int code = launch(*p, used.a, used.b, used.out, used.workspace)) return code;
    }
    for (int32_t i = 0; i < samples; ++i) {
        if (!is_empty) {
            const Operands& used = operands[(first + i) % count];
            if (const int code = launch(*p, used.a, used.b, used.out, used.workspace)) return code;
        }
        const double kernel_ns = is_empty ? 0 : SHORT;
        ns[i] = (by_graph ? kernel_ns + GRAPH : kernel_ns > 4000 ? kernel_ns : 4000) + (is_empty ? 0 : i * 1e-3);
        stub_pass(ns[i] * (loops + (by_graph ? 32 : 0)) / 1e6);
    }
    return 0;
}
#endif
}
