// basic_v1 of late 2025 moves the window of a transposed operand along its other axis, so that it reads wrong tiles from
// the second on, and does not know of gfx950, whose LDS transposes. This one does both as CK Tile's other pipelines do.
#pragma once

namespace ckh {

template <class Problem, class Policy>
struct BasicV1 : ck_tile::GemmPipelineAGmemBGmemCRegV1<Problem, Policy> {
    using Base = ck_tile::GemmPipelineAGmemBGmemCRegV1<Problem, Policy>;
    using Tiles = ck_tile::GemmPipelineAgBgCrImplBase<Problem, Policy>;
    using typename Base::BlockGemm;

    static constexpr bool is_a_transposed =
        std::is_same_v<typename Base::ALayout, ck_tile::tensor_layout::gemm::ColumnMajor>;
    static constexpr bool is_b_transposed =
        std::is_same_v<typename Base::BLayout, ck_tile::tensor_layout::gemm::RowMajor>;
    template <bool IsTransposed>
    static constexpr auto step = IsTransposed ? ck_tile::make_array(Base::kKPerBlock, 0)
                                              : ck_tile::make_array(0, Base::kKPerBlock);

    // Store what was loaded of an operand in LDS, transposed in registers unless LDS does that.
    template <class Window, class Tile>
    CK_TILE_DEVICE static void store_a(Window& window, const Tile& tile) {
        if constexpr (is_a_transposed && !Tiles::is_a_load_tr) {
            auto turned = ck_tile::make_static_distributed_tensor<typename Base::ADataType>(
                Policy::template MakeShuffledARegTileDistribution<Problem>());
            ck_tile::transpose_tile2d(turned, tile);
            ck_tile::store_tile(window, turned);
        } else {
            ck_tile::store_tile(window, tile);
        }
    }
    template <class Window, class Tile>
    CK_TILE_DEVICE static void store_b(Window& window, const Tile& tile) {
        if constexpr (is_b_transposed && !Tiles::is_b_load_tr) {
            auto turned = ck_tile::make_static_distributed_tensor<typename Base::BDataType>(
                Policy::template MakeShuffledBRegTileDistribution<Problem>());
            ck_tile::transpose_tile2d(turned, tile);
            ck_tile::store_tile(window, turned);
        } else {
            ck_tile::store_tile(window, tile);
        }
    }

    // Adds the product of what is in LDS; the intrawave block GEMM multiplies what was loaded before.
    template <class Tile, class A, class B>
    CK_TILE_DEVICE static void multiply(BlockGemm& block_gemm, Tile& c, const A& a, const B& b) {
        constexpr ck_tile::bool_constant<Tiles::is_a_load_tr> turns_a{};
        constexpr ck_tile::bool_constant<Tiles::is_b_load_tr> turns_b{};
        if constexpr (Problem::Scheduler == ck_tile::GemmPipelineScheduler::Intrawave) {
            block_gemm.LocalPrefetch(a, b, turns_a, turns_b);
        }
        block_gemm(c, a, b, turns_a, turns_b);
    }

    template <class AWindow, class BWindow>
    CK_TILE_DEVICE auto operator()(const AWindow& a_block, const BWindow& b_block, ck_tile::index_t num_loop,
                                   void* smem) const {
        const Tiles tiles;
        auto&& [a_lds, b_lds] = tiles.GetABLdsTensorViews(smem);
        auto&& [a_global, a_stored, a_read] = tiles.GetAWindows(
            a_block, a_lds, ck_tile::make_static_tile_distribution(BlockGemm::MakeABlockDistributionEncode()));
        auto&& [b_global, b_stored, b_read] = tiles.GetBWindows(
            b_block, b_lds, ck_tile::make_static_tile_distribution(BlockGemm::MakeBBlockDistributionEncode()));
        BlockGemm block_gemm;
        auto c = block_gemm.MakeCBlockTile();
        ck_tile::tile_elementwise_inout([](auto& element) { element = 0; }, c);
        auto a = ck_tile::load_tile(a_global);
        auto b = ck_tile::load_tile(b_global);
        store_a(a_stored, a);
        store_b(b_stored, b);
        for (ck_tile::index_t left = num_loop - 1; left > 0; --left) {
            ck_tile::move_tile_window(a_global, step<is_a_transposed>);
            ck_tile::move_tile_window(b_global, step<is_b_transposed>);
            a = ck_tile::load_tile(a_global);
            b = ck_tile::load_tile(b_global);
            ck_tile::block_sync_lds();
            multiply(block_gemm, c, a_read, b_read);
            ck_tile::block_sync_lds();
            store_a(a_stored, a);
            store_b(b_stored, b);
        }
        ck_tile::block_sync_lds();
        multiply(block_gemm, c, a_read, b_read);
        ck_tile::block_sync_lds();
        return c;
    }

    // What GEMM kernels call: tuples of one window each, whose elements are taken as they are.
    template <class AWindows, class AFunction, class BWindows, class BFunction>
    CK_TILE_DEVICE auto operator()(const AWindows& a_blocks, const AFunction&, const BWindows& b_blocks,
                                   const BFunction&, ck_tile::index_t num_loop, void* smem) const {
        return (*this)(a_blocks[ck_tile::number<0>{}], b_blocks[ck_tile::number<0>{}], num_loop, smem);
    }
};

}  // namespace ckh
