// Checks of results on a GPU: the reference's sums of products, one element a thread, and comparisons. All pointers are of
// the device. Functions return HIP's error; none waits.
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr int axes = 7, before = 2, spatial = 3, threads = 256;

// As in computation.py.
struct Contraction {
    int64_t first, first_a, first_b;
    int64_t size[axes], a[axes], b[axes];
    int64_t terms[spatial + 1], terms_a[spatial + 1], terms_b[spatial + 1];
    int64_t times[spatial], ahead[spatial], offset[spatial], divisor[spatial], limit[spatial];
    int64_t met_a[spatial], met_b[spatial];
};

// Element types by their storage.
struct BFloat {
    uint16_t bits;
};
struct Code {
    uint8_t bits;
};

__device__ float value(float x, const float*) { return x; }
__device__ float value(_Float16 x, const float*) { return static_cast<float>(x); }
__device__ float value(BFloat x, const float*) {
    const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
    float number;
    __builtin_memcpy(&number, &wide, sizeof number);
    return number;
}
__device__ float value(Code x, const float* codes) { return codes[x.bits]; }
__device__ float value(int8_t x, const float*) { return x; }
__device__ double value(int32_t x, const float*) { return x; }

__device__ int64_t number_of_thread() { return static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; }

// Each element's sum, in double precision, and its sum of magnitudes.
template <class Element>
__global__ void sum(Contraction c, int64_t count, const Element* a, const Element* b, const float* codes, double* sums,
                    float* magnitudes) {
    const int64_t number = number_of_thread();
    if (number >= count) return;
    a += c.first_a, b += c.first_b;
    int64_t rest = number, at[axes];
#pragma unroll
    for (int axis = axes - 1; axis >= 0; --axis) {
        at[axis] = rest % c.size[axis], rest /= c.size[axis];
        a += at[axis] * c.a[axis], b += at[axis] * c.b[axis];
    }
    double total = 0;
    float magnitude = 0;
    int64_t term[spatial];
    for (term[0] = 0; term[0] < c.terms[0]; ++term[0])
        for (term[1] = 0; term[1] < c.terms[1]; ++term[1])
            for (term[2] = 0; term[2] < c.terms[2]; ++term[2]) {
                const Element *x = a, *y = b;
                bool meets = true;
#pragma unroll
                for (int j = 0; j < spatial; ++j) {
                    const int64_t scaled = c.times[j] * at[before + j] + c.ahead[j] * term[j] + c.offset[j];
                    const int64_t met = c.divisor[j] == 1 ? scaled : scaled / c.divisor[j];
                    meets = meets && scaled >= 0 && met * c.divisor[j] == scaled && met < c.limit[j];
                    x += term[j] * c.terms_a[j] + met * c.met_a[j], y += term[j] * c.terms_b[j] + met * c.met_b[j];
                }
                for (int64_t i = 0; meets && i < c.terms[spatial]; ++i) {
                    const float left = value(x[i * c.terms_a[spatial]], codes);
                    const float right = value(y[i * c.terms_b[spatial]], codes);
                    total = fma(static_cast<double>(left), static_cast<double>(right), total);
                    magnitude = fmaf(fabsf(left), fabsf(right), magnitude);
                }
            }
    sums[c.first + number] = total, magnitudes[c.first + number] = magnitude;
}

// Counts the elements outside of their bounds; NaN is right where both bounds are. Where the lower bound is above the
// upper one, all bytes must be as before the kernel wrote.
template <class Element, class Bound>
__global__ void outside(const Element* stored, const Bound* low, const Bound* high, int64_t size, int32_t unwritten,
                        unsigned long long* count) {
    const int64_t number = number_of_thread();
    if (number >= size) return;
    const Bound x = value(stored[number], nullptr), least = low[number], most = high[number];
    bool is_right = (x >= least && x <= most) || (x != x && least != least && most != most);
    if (least > most) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(stored + number);
        is_right = true;
        for (size_t i = 0; i < sizeof(Element); ++i) is_right = is_right && bytes[i] == unwritten;
    }
    if (!is_right) atomicAdd(count, 1ull);
}

// Counts the bytes that differ.
__global__ void differ(const uint8_t* x, const uint8_t* y, int64_t size, unsigned long long* count) {
    const int64_t number = number_of_thread();
    if (number < size && x[number] != y[number]) atomicAdd(count, 1ull);
}

template <class... Parameters, class... Arguments>
int32_t launched(int64_t count, void (*kernel)(Parameters...), Arguments... arguments) {
    if (count == 0) return hipSuccess;
    const dim3 grid(static_cast<uint32_t>((count + threads - 1) / threads)), block(threads);
    hipLaunchKernelGGL(kernel, grid, block, 0, nullptr, static_cast<Parameters>(arguments)...);
    return hipGetLastError();
}

template <class Element>
int32_t sum_of(const Contraction& c, const void* a, const void* b, const float* codes, double* sums, float* magnitudes) {
    int64_t count = 1;
    for (const int64_t size : c.size) count *= size;
    return launched(count, sum<Element>, c, count, static_cast<const Element*>(a), static_cast<const Element*>(b), codes,
                    sums, magnitudes);
}

template <class Element, class Bound>
int32_t outside_of(const void* stored, const void* low, const void* high, int64_t size, int32_t unwritten,
                   unsigned long long* count) {
    return launched(size, outside<Element, Bound>, static_cast<const Element*>(stored), static_cast<const Bound*>(low),
                    static_cast<const Bound*>(high), size, unwritten, count);
}

}  // namespace

extern "C" {

// `type` is an index of TYPES in checks.py; `codes` are the numbers of 8-bit codes.
int32_t ckh_sum(int32_t type, const Contraction* c, const void* a, const void* b, const float* codes, double* sums,
                float* magnitudes) {
    const decltype(&sum_of<float>) of_type[] = {sum_of<float>, sum_of<_Float16>, sum_of<BFloat>, sum_of<int8_t>,
                                                sum_of<Code>};
    return of_type[type](*c, a, b, codes, sums, magnitudes);
}

int32_t ckh_outside(int32_t type, const void* stored, const void* low, const void* high, int64_t size, int32_t unwritten,
                    unsigned long long* count) {
    const decltype(&outside_of<float, float>) of_type[] = {outside_of<float, float>, outside_of<_Float16, float>,
                                                           outside_of<BFloat, float>, outside_of<int32_t, double>};
    return of_type[type](stored, low, high, size, unwritten, count);
}

int32_t ckh_differ(const void* x, const void* y, int64_t size, unsigned long long* count) {
    return launched(size, differ, static_cast<const uint8_t*>(x), static_cast<const uint8_t*>(y), size, count);
}
}
