// What AMD's dispatcher declares for GEMMs, as far as a heuristic meets it: a stand-in for tests.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ck_tile {
namespace dispatcher {

struct Problem
{
    std::int64_t M = 0, N = 0, K = 0;
    std::int32_t k_batch = 1, smem_budget = 0;
    bool prefer_persistent = false, enable_validation = false;
    Problem() = default;
    Problem(std::int64_t m, std::int64_t n, std::int64_t k) : M(m), N(n), K(k) {}
};

using HeuristicFunction = std::function<std::vector<std::string>(const Problem&)>;

class Dispatcher
{
    public:
    enum class SelectionStrategy { FirstFit, Heuristic };
    void set_heuristic(HeuristicFunction heuristic) { heuristic_ = heuristic; }
    void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }

    // The stand-in's own: what the heuristic said.
    std::vector<std::string> ranked(const Problem& problem) const
    {
        return strategy_ == SelectionStrategy::Heuristic ? heuristic_(problem) : std::vector<std::string>{};
    }

    private:
    HeuristicFunction heuristic_;
    SelectionStrategy strategy_ = SelectionStrategy::FirstFit;
};

} // namespace dispatcher
} // namespace ck_tile
