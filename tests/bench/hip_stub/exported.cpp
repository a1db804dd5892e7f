// A kernel for the GPU that stub.c is, with the exported functions of real ones. What tells kernels apart is in a file of
// C that is linked to this: what they are called, how long they take a problem at full speed, and what goes wrong.
#include "check.hpp"

extern "C" {
extern const char stub_label[];
double stub_ns(const int64_t* sizes);
extern const char stub_fault[];
void stub_arm(const char* faults);
void stub_kernel(const void* function, double ns);
void* stub_host(const void* device);
}

namespace ckh {

namespace kernel {
inline constexpr const char* label = stub_label;
}

struct Problem {
    int64_t n, c, k, g, di, hi, wi, z, y, x, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w, do_, ho, wo;
};

struct Operands {
    const void *a, *b;
    void *out, *workspace;
};

struct Work {
    Problem problem;
    Operands operands;
};

inline float output(const Problem& p, const float* image, const float* filter, int64_t n, int64_t h, int64_t w,
                    int64_t k) {
    const int64_t channels = p.c / p.g, group = k / (p.k / p.g);
    double sum = 0;
    for (int64_t y = 0; y < p.y; ++y)
        for (int64_t x = 0; x < p.x; ++x) {
            const int64_t row = h * p.stride_h - p.pad_h + y * p.dilation_h;
            const int64_t column = w * p.stride_w - p.pad_w + x * p.dilation_w;
            if (row < 0 || row >= p.hi || column < 0 || column >= p.wi) continue;
            const float* pixel = image + ((n * p.hi + row) * p.wi + column) * p.c + group * channels;
            const float* tap = filter + ((k * p.y + y) * p.x + x) * channels;
            for (int64_t c = 0; c < channels; ++c) sum += double(pixel[c]) * tap[c];
        }
    return float(sum);
}

inline void convolve(const Work* work) {
    const Problem& p = work->problem;
    const auto* image = static_cast<const float*>(stub_host(work->operands.a));
    const auto* filter = static_cast<const float*>(stub_host(work->operands.b));
    auto* out = static_cast<float*>(stub_host(work->operands.out));
    for (int64_t i = 0; i < p.n * p.ho * p.wo * p.k; ++i)
        out[i] = output(p, image, filter, i / (p.k * p.wo * p.ho), i / (p.k * p.wo) % p.ho, i / p.k % p.wo, i % p.k);
}

inline const char* reason_unsupported(const Problem&) { return nullptr; }
inline int64_t workspace_bytes(const Problem&) { return 0; }
inline void zero_result(const Problem&, const Operands&, hipStream_t) {}
inline bool adds_to_result(const Problem&) { return false; }

inline Launch prepare(const Problem& p, const Operands& operands) {
    static const bool is_ready = [] {
        stub_arm(stub_fault);
        return true;
    }();
    static_cast<void>(is_ready);
    stub_kernel(reinterpret_cast<const void*>(convolve), stub_ns(&p.n));
    static Work works[256];  // of the launches that are prepared at a time
    static int next = 0;
    Work& work = works[next++ % 256];
    work = {p, operands};
    return launch_of(convolve, dim3{}, dim3{}, static_cast<const Work*>(&work));
}

}  // namespace ckh

#include "exports.hpp"
