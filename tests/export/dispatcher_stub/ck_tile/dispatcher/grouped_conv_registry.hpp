// Copyright (c) Advanced Micro Devices, Inc., or its affiliates.
// SPDX-License-Identifier: MIT
//
// Part of projects/composablekernel/dispatcher/include/ck_tile/dispatcher/grouped_conv_registry.hpp of
// ROCm/rocm-libraries at 259bd2885888c115e5c194a71f7792ebfce792a4: how kernels are registered and selected. Left out
// are the export to JSON, launches, and what of a key is never set here.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernel_decl.hpp"
#include "ck_tile/dispatcher/grouped_conv_problem.hpp"

namespace ck_tile {
namespace dispatcher {

struct GroupedConvKernelKey
{
    std::string dtype_in;
    std::string layout;
    int ndim_spatial = 2;
    GroupedConvOp op = GroupedConvOp::Forward;
    int tile_m = 1;
    int tile_n = 128;
    int tile_k = 128;
    int wave_m = 2;
    int wave_n = 2;
    int wave_k = 1;
    int warp_m = 32;
    int warp_n = 32;
    int warp_k = 16;
    std::string pipeline    = "compv3";
    std::string scheduler   = "intrawave";
    std::string epilogue    = "cshuffle";
    int vector_size_a       = 4;
    int vector_size_b       = 8;
    int vector_size_c       = 8;
    int num_wave_groups     = 1;
    int num_groups_to_merge = 1;
    bool large_tensor       = false;
    std::string arch        = "gfx942";

    bool operator==(const GroupedConvKernelKey& other) const
    {
        return dtype_in == other.dtype_in && layout == other.layout && ndim_spatial == other.ndim_spatial &&
               op == other.op && tile_m == other.tile_m && tile_n == other.tile_n && tile_k == other.tile_k &&
               wave_m == other.wave_m && wave_n == other.wave_n && wave_k == other.wave_k &&
               warp_m == other.warp_m && warp_n == other.warp_n && warp_k == other.warp_k &&
               scheduler == other.scheduler && epilogue == other.epilogue && pipeline == other.pipeline && vector_size_a == other.vector_size_a &&
               vector_size_b == other.vector_size_b && vector_size_c == other.vector_size_c &&
               num_wave_groups == other.num_wave_groups && num_groups_to_merge == other.num_groups_to_merge &&
               large_tensor == other.large_tensor && arch == other.arch;
    }
};

struct GroupedConvKernelKeyHash
{
    std::size_t operator()(const GroupedConvKernelKey& key) const
    {
        std::size_t h = std::hash<std::string>{}(key.dtype_in);
        h ^= std::hash<int>{}(key.tile_m) << 4;
        h ^= std::hash<int>{}(key.tile_n) << 5;
        h ^= std::hash<int>{}(key.tile_k) << 6;
        h ^= std::hash<std::string>{}(key.pipeline) << 11;
        return h;
    }
};

class GroupedConvKernelInstance
{
    public:
    using RunFn         = std::function<float(const GroupedConvProblem&, void*)>;
    using IsSupportedFn = std::function<bool(const GroupedConvProblem&)>;

    GroupedConvKernelInstance(const GroupedConvKernelKey& key,
                              const std::string& name,
                              RunFn run_fn,
                              IsSupportedFn is_supported_fn      = nullptr,
                              const std::string& instance_string = "")
        : key_(key),
          name_(name),
          run_fn_(std::move(run_fn)),
          is_supported_fn_(std::move(is_supported_fn)),
          instance_string_(instance_string)
    {
    }

    const GroupedConvKernelKey& key() const { return key_; }

    const std::string& name(bool use_instance_string = false) const
    {
        if(use_instance_string && !instance_string_.empty())
            return instance_string_;
        return name_;
    }

    bool matches(const GroupedConvProblem& problem) const
    {
        // Check if this kernel can handle the problem
        return problem.op == key_.op;
    }

    private:
    GroupedConvKernelKey key_;
    std::string name_;
    RunFn run_fn_;
    IsSupportedFn is_supported_fn_;
    std::string instance_string_;
};

class GroupedConvRegistry : public BaseRegistry<GroupedConvRegistry,
                                                GroupedConvKernelKey,
                                                GroupedConvKernelInstance,
                                                GroupedConvKernelKeyHash>
{
    using Base = BaseRegistry<GroupedConvRegistry,
                              GroupedConvKernelKey,
                              GroupedConvKernelInstance,
                              GroupedConvKernelKeyHash>;

    public:
    GroupedConvRegistry() = default;

    /// Singleton instance for global kernel registration
    static GroupedConvRegistry& instance()
    {
        static GroupedConvRegistry registry;
        return registry;
    }

    /// Register kernels from a GroupedConvKernelSet (atomic batch registration)
    bool register_set(const GroupedConvKernelSet& kernel_set, Priority priority = Priority::Normal)
    {
        // Build all instances first, then register under a single lock hold
        // so readers never see a half-registered set.
        std::vector<std::pair<GroupedConvKernelKey, std::shared_ptr<GroupedConvKernelInstance>>>
            batch;
        batch.reserve(kernel_set.declarations().size());

        for(const auto& decl : kernel_set.declarations())
        {
            GroupedConvKernelKey key;
            key.dtype_in        = decl.signature.dtype_in_;
            key.layout          = decl.signature.layout_;
            key.ndim_spatial    = decl.signature.num_dims_;
            key.op              = (decl.signature.conv_op_ == "forward") ? GroupedConvOp::Forward
                                  : (decl.signature.conv_op_ == "bwd_data") ? GroupedConvOp::BackwardData
                                                                            : GroupedConvOp::BackwardWeight;
            key.tile_m          = decl.algorithm.tile_m_;
            key.tile_n          = decl.algorithm.tile_n_;
            key.tile_k          = decl.algorithm.tile_k_;
            key.wave_m          = decl.algorithm.wave_m_;
            key.wave_n          = decl.algorithm.wave_n_;
            key.wave_k          = decl.algorithm.wave_k_;
            key.warp_m          = decl.algorithm.warp_m_;
            key.warp_n          = decl.algorithm.warp_n_;
            key.warp_k          = decl.algorithm.warp_k_;
            key.pipeline        = decl.algorithm.pipeline_;
            key.scheduler       = decl.algorithm.scheduler_;
            key.epilogue        = decl.algorithm.epilogue_;
            key.vector_size_a   = decl.algorithm.vector_a_;
            key.vector_size_b   = decl.algorithm.vector_b_;
            key.vector_size_c   = decl.algorithm.vector_c_;
            key.num_wave_groups = decl.algorithm.num_wave_groups_;
            key.num_groups_to_merge = decl.algorithm.num_groups_to_merge_;
            key.arch                = decl.arch;

            batch.emplace_back(key,
                               std::make_shared<GroupedConvKernelInstance>(
                                   key, decl.name(), [](const GroupedConvProblem&, void*) -> float {
                                       return 0.0f;
                                   }));
        }

        std::lock_guard<std::mutex> lock(mutex());
        bool any_registered = false;
        for(auto& [key, instance] : batch)
        {
            auto it = entries().find(key);
            if(it == entries().end() || it->second.priority <= priority)
            {
                entries_mut()[key] = typename Base::Entry{std::move(instance), priority};
                any_registered     = true;
            }
        }
        return any_registered;
    }

    /// Find the best kernel for a problem
    const GroupedConvKernelInstance* find(const GroupedConvProblem& problem) const
    {
        std::lock_guard<std::mutex> lock(mutex());
        const GroupedConvKernelInstance* best = nullptr;
        Priority best_priority                = Priority::Low;

        for(const auto& [key, entry] : entries())
        {
            if(entry.instance->matches(problem))
            {
                if(!best || entry.priority > best_priority)
                {
                    best          = entry.instance.get();
                    best_priority = entry.priority;
                }
            }
        }

        return best;
    }

    /// Get all registered kernels
    std::vector<const GroupedConvKernelInstance*> all_kernels() const
    {
        std::lock_guard<std::mutex> lock(mutex());
        std::vector<const GroupedConvKernelInstance*> result;
        for(const auto& [key, entry] : entries())
        {
            result.push_back(entry.instance.get());
        }
        return result;
    }
};

class GroupedConvDispatcher
{
    public:
    enum class SelectionStrategy
    {
        PriorityBased,
        Heuristic
    };

    using HeuristicFunction = std::function<std::vector<std::string>(const GroupedConvProblem&)>;

    explicit GroupedConvDispatcher(GroupedConvRegistry* registry)
        : registry_(registry), strategy_(SelectionStrategy::PriorityBased)
    {
    }

    void set_strategy(SelectionStrategy s) { strategy_ = s; }
    void set_heuristic(HeuristicFunction fn) { heuristic_ = std::move(fn); }

    /// Select the best kernel for a problem (does not run it)
    const GroupedConvKernelInstance* select_kernel(const GroupedConvProblem& problem) const
    {
        if(strategy_ == SelectionStrategy::Heuristic)
            return select_heuristic(problem);
        return registry_->find(problem);
    }

    // Of the stand-in: the names that the heuristic gives.
    std::vector<std::string> ranked(const GroupedConvProblem& problem) const { return heuristic_(problem); }

    private:
    const GroupedConvKernelInstance* select_heuristic(const GroupedConvProblem& problem) const
    {
        if(!heuristic_)
            return registry_->find(problem);

        auto ranked_names = heuristic_(problem);
        auto all          = registry_->all_kernels();
        for(const auto& name : ranked_names)
        {
            for(const auto* kernel : all)
            {
                if(kernel->name().find(name) != std::string::npos && kernel->matches(problem))
                {
                    return kernel;
                }
            }
        }
        return registry_->find(problem);
    }

    GroupedConvRegistry* registry_;
    SelectionStrategy strategy_;
    HeuristicFunction heuristic_;
};

} // namespace dispatcher
} // namespace ck_tile
