// The convolution as the caller states it. The same structure as for the host device.
#pragma once

#include <cstdint>

extern "C" {
struct ckh_conv_problem {
    int64_t n, c, k, g;
    int64_t di, hi, wi;
    int64_t z, y, x;
    int64_t stride_d, stride_h, stride_w;
    int64_t pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w;
    int64_t do_, ho, wo;
};
}

namespace ckh {

using Problem = ckh_conv_problem;

// What a launch reads and writes, all on the device. `a`, `b` and `out` are X, W, Y in forward; dY, W, dX in backward
// data; dY, X, dW in backward weight.
struct Operands {
    const void* a;
    const void* b;
    void* out;
    void* workspace;
};

}  // namespace ckh
