// The fields of a convolution that AMD's dispatcher declares, as far as a heuristic meets them: a stand-in for tests.
// OLDER has them as they first were.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace ck_tile {
namespace dispatcher {

enum class GroupedConvOp { Forward, BackwardData, BackwardWeight };

struct GroupedConvProblem
{
    using Axes = std::array<std::int64_t, 3>;
    std::int64_t N = 1, C = 64, K = 64, G = 1;
    Axes input_spatial{1, 28, 28}, filter_spatial{1, 3, 3}, output_spatial{1, 26, 26};
    Axes stride{1, 1, 1}, dilation{1, 1, 1};
    GroupedConvOp op = GroupedConvOp::Forward;
#ifdef OLDER
    Axes padding{0, 0, 0};
#else
    std::string dtype_in, dtype_wei, dtype_out, layout, arch;
    int ndim_spatial = 2, split_k = 1;
    Axes padding_left{0, 0, 0}, padding_right{0, 0, 0};
#endif
};

} // namespace dispatcher
} // namespace ck_tile
