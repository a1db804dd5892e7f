// The second stage of a kernel that has one: the accumulators in the workspace become elements of the output.
#pragma once

#include "types.hpp"

namespace ckh {

inline constexpr int kConvertThreads = 256;

template <class Element>
__global__ void round_accumulators(const float* from, Element* to, int64_t count) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * kConvertThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kConvertThreads + threadIdx.x; i < count; i += step) {
        to[i] = ck_tile::type_convert<Element>(from[i]);
    }
}

template <bool TwoStage>
void launch_second_stage(const Problem& p, const Operands& operands, hipStream_t stream) {
    if constexpr (TwoStage) {
        const int64_t count = filter_elements(p);
        const int64_t wanted = (count + kConvertThreads - 1) / kConvertThreads;
        const auto blocks = static_cast<unsigned>(wanted < 65536 ? wanted : 65536);
        round_accumulators<kernel::Element><<<dim3(blocks), dim3(kConvertThreads), 0, stream>>>(
            static_cast<const float*>(operands.workspace), static_cast<kernel::Element*>(operands.out), count);
    }
}

}  // namespace ckh
