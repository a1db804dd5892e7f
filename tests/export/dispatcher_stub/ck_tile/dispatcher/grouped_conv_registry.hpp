// What AMD's dispatcher declares for convolutions, as far as a heuristic meets it: a stand-in for tests. OLDER has the
// fields of its problems as they first were.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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

class GroupedConvRegistry
{
    public:
    static GroupedConvRegistry& instance()
    {
        static GroupedConvRegistry registry;
        return registry;
    }
};

class GroupedConvDispatcher
{
    public:
    explicit GroupedConvDispatcher(GroupedConvRegistry*) {}
    enum class SelectionStrategy { PriorityBased, Heuristic };
    using HeuristicFunction = std::function<std::vector<std::string>(const GroupedConvProblem&)>;
    void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
    void set_heuristic(HeuristicFunction fn) { heuristic_ = std::move(fn); }

    // The stand-in's own: what the heuristic said.
    std::vector<std::string> ranked(const GroupedConvProblem& problem) const
    {
        return strategy_ == SelectionStrategy::Heuristic ? heuristic_(problem) : std::vector<std::string>{};
    }

    private:
    HeuristicFunction heuristic_;
    SelectionStrategy strategy_ = SelectionStrategy::PriorityBased;
};

} // namespace dispatcher
} // namespace ck_tile
