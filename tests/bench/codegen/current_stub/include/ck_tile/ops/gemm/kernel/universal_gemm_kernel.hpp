// Stub: the kernel, and its arguments on the host and on the device.
#pragma once

#include <array>

#include "ck_tile/core/element_types.hpp"
#include "ck_tile/host/kernel_launch.hpp"

namespace ck_tile {

struct PersistentAsyncInputScheduler {
    uint32_t* chunk_signals = nullptr;
};

template <index_t NumATensor = 1, index_t NumBTensor = 1, index_t NumDTensor = 0>
struct UniversalGemmHostArgs {
    CK_TILE_HOST UniversalGemmHostArgs(
        const std::array<const void*, NumATensor>& as_ptr_,
        const std::array<const void*, NumBTensor>& bs_ptr_,
        const std::array<const void*, NumDTensor>& ds_ptr_,
        void* e_ptr_,
        index_t k_batch_,
        index_t M_,
        index_t N_,
        index_t K_,
        const std::array<index_t, NumATensor>& stride_As_,
        const std::array<index_t, NumBTensor>& stride_Bs_,
        const std::array<index_t, NumDTensor>& stride_Ds_,
        index_t stride_E_,
        PersistentAsyncInputScheduler async_input_scheduler_ = PersistentAsyncInputScheduler{})
        : as_ptr(as_ptr_),
          bs_ptr(bs_ptr_),
          ds_ptr(ds_ptr_),
          e_ptr(e_ptr_),
          M(M_),
          N(N_),
          K(K_),
          stride_As(stride_As_),
          stride_Bs(stride_Bs_),
          stride_Ds(stride_Ds_),
          stride_E(stride_E_),
          k_batch(k_batch_),
          async_input_scheduler(async_input_scheduler_) {}

    const std::array<const void*, NumATensor> as_ptr;
    const std::array<const void*, NumBTensor> bs_ptr;
    const std::array<const void*, NumDTensor> ds_ptr;
    void* e_ptr;
    index_t M;
    index_t N;
    index_t K;
    const std::array<index_t, NumATensor> stride_As;
    const std::array<index_t, NumBTensor> stride_Bs;
    const std::array<index_t, NumDTensor> stride_Ds;
    index_t stride_E;
    index_t k_batch;
    PersistentAsyncInputScheduler async_input_scheduler;
};

struct UniversalGemmKernelArgs {
    const void* a_ptr;
    const void* b_ptr;
    void* e_ptr;
    index_t M, N, K, stride_A, stride_B, stride_E, k_batch;
};

template <typename TilePartitioner_, typename GemmPipeline_, typename EpiloguePipeline_, typename Derived_ = void>
struct UniversalGemmKernel {
    using GemmPipeline = GemmPipeline_;
    using KernelArgs = UniversalGemmKernelArgs;
    static constexpr index_t kBlockSize = GemmPipeline::BlockSize;
    static constexpr bool PersistentKernel = [] {
        if constexpr (requires { GemmPipeline::UsePersistentKernel; }) {
            return GemmPipeline::UsePersistentKernel;
        } else {
            return false;
        }
    }();
    static_assert(!GemmPipeline::Preshuffle);
    static_assert(std::is_same_v<typename TilePartitioner_::BlockGemmShape, typename GemmPipeline::BlockGemmShape>);

    CK_TILE_HOST static constexpr auto GridSize(index_t M, index_t N, index_t KBatch) {
        return dim3(TilePartitioner_::GridSize(M, N), 1, KBatch);
    }
    CK_TILE_HOST static auto BlockSize() { return dim3(kBlockSize); }
    CK_TILE_HOST static constexpr KernelArgs MakeKernelArgs(const UniversalGemmHostArgs<1, 1, 0>& hostArgs) {
        return {hostArgs.as_ptr[0],    hostArgs.bs_ptr[0],    hostArgs.e_ptr,    hostArgs.M,
                hostArgs.N,            hostArgs.K,            hostArgs.stride_As[0], hostArgs.stride_Bs[0],
                hostArgs.stride_E,     hostArgs.k_batch};
    }
    // Published, it asks for less and more. This one tells whether leading dimensions are those of dense operands.
    CK_TILE_HOST static bool IsSupportedArgument(const KernelArgs& kargs) {
        using RowMajor = tensor_layout::gemm::RowMajor;
        const bool a = kargs.stride_A == (std::is_same_v<typename GemmPipeline::ALayout, RowMajor> ? kargs.K : kargs.M);
        const bool b = kargs.stride_B == (std::is_same_v<typename GemmPipeline::BLayout, RowMajor> ? kargs.N : kargs.K);
        const index_t widths = GemmPipeline::template GetVectorSizeA<true>() + GemmPipeline::template GetVectorSizeB<true>();
        return a && b && kargs.stride_E == kargs.N && kargs.k_batch > 0 && widths > 0;
    }
    template <typename KArgs>
    CK_TILE_DEVICE void operator()(KArgs) const {
        using A = typename GemmPipeline::AElementWise;
        using B = typename GemmPipeline::BElementWise;
        const auto tile = GemmPipeline{}.template operator()(TileWindow{}, A{}, TileWindow{}, B{}, 1, nullptr);
        EpiloguePipeline_{}(static_cast<typename EpiloguePipeline_::ODataType*>(nullptr), tile, nullptr);
    }
};

}  // namespace ck_tile
