// basic_v1 of late 2025 moves the window of a transposed operand along its other axis, and so reads wrong tiles from the
// second on. This one moves it along K; the rest is as CK Tile has it.
#pragma once

namespace ckh {

template <class Problem, class Policy>
struct BasicV1 : ck_tile::GemmPipelineAGmemBGmemCRegV1<Problem, Policy> {
    using Base = ck_tile::GemmPipelineAGmemBGmemCRegV1<Problem, Policy>;
    using typename Base::BlockGemm, typename Base::ADataType, typename Base::BDataType;
    static constexpr bool transposes_a =
        std::is_same_v<typename Base::ALayout, ck_tile::tensor_layout::gemm::ColumnMajor>;
    static constexpr bool transposes_b =
        std::is_same_v<typename Base::BLayout, ck_tile::tensor_layout::gemm::RowMajor>;

    template <bool IsTransposed>
    static constexpr auto step = IsTransposed ? ck_tile::make_array(Base::kKPerBlock, 0)
                                              : ck_tile::make_array(0, Base::kKPerBlock);

    // Stores what was loaded of an operand in LDS, through registers of another distribution if it is transposed.
    template <class Window, class Tile>
    CK_TILE_DEVICE static void store_a(Window& window, const Tile& tile) {
        if constexpr (transposes_a) {
            auto turned = ck_tile::make_static_distributed_tensor<ADataType>(
                Policy::template MakeShuffledARegTileDistribution<Problem>());
            ck_tile::transpose_tile2d(turned, tile);
            ck_tile::store_tile(window, turned);
        } else {
            ck_tile::store_tile(window, tile);
        }
    }
    template <class Window, class Tile>
    CK_TILE_DEVICE static void store_b(Window& window, const Tile& tile) {
        if constexpr (transposes_b) {
            auto turned = ck_tile::make_static_distributed_tensor<BDataType>(
                Policy::template MakeShuffledBRegTileDistribution<Problem>());
            ck_tile::transpose_tile2d(turned, tile);
            ck_tile::store_tile(window, turned);
        } else {
            ck_tile::store_tile(window, tile);
        }
    }

    template <class AWindow, class BWindow>
    CK_TILE_DEVICE auto operator()(const AWindow& a_block, const BWindow& b_block, ck_tile::index_t num_loop,
                                   void* smem) const {
        constexpr auto a_desc = Policy::template MakeALdsBlockDescriptor<Problem>();
        constexpr auto b_desc = Policy::template MakeBLdsBlockDescriptor<Problem>();
        constexpr auto a_bytes = ck_tile::integer_least_multiple(
            sizeof(ADataType) * a_desc.get_element_space_size(), Base::kLdsAlignmentInBytes);
        void* smem_b = static_cast<char*>(smem) + a_bytes;
        auto a_lds = ck_tile::make_tensor_view<ck_tile::address_space_enum::lds>(static_cast<ADataType*>(smem), a_desc);
        auto b_lds =
            ck_tile::make_tensor_view<ck_tile::address_space_enum::lds>(static_cast<BDataType*>(smem_b), b_desc);

        constexpr auto a_lengths =
            ck_tile::make_tuple(ck_tile::number<Base::kMPerBlock>{}, ck_tile::number<Base::kKPerBlock>{});
        constexpr auto b_lengths =
            ck_tile::make_tuple(ck_tile::number<Base::kNPerBlock>{}, ck_tile::number<Base::kKPerBlock>{});
        auto a_stored = ck_tile::make_tile_window(a_lds, a_lengths, {0, 0});
        auto b_stored = ck_tile::make_tile_window(b_lds, b_lengths, {0, 0});
        auto a_read = ck_tile::make_tile_window(
            a_lds, a_lengths, {0, 0}, ck_tile::make_static_tile_distribution(BlockGemm::MakeABlockDistributionEncode()));
        auto b_read = ck_tile::make_tile_window(
            b_lds, b_lengths, {0, 0}, ck_tile::make_static_tile_distribution(BlockGemm::MakeBBlockDistributionEncode()));
        auto a_global = ck_tile::make_tile_window(a_block.get_bottom_tensor_view(), a_block.get_window_lengths(),
                                                  a_block.get_window_origin(),
                                                  Policy::template MakeADramTileDistribution<Problem>());
        auto b_global = ck_tile::make_tile_window(b_block.get_bottom_tensor_view(), b_block.get_window_lengths(),
                                                  b_block.get_window_origin(),
                                                  Policy::template MakeBDramTileDistribution<Problem>());

        auto block_gemm = BlockGemm();
        auto c = decltype(block_gemm(a_read, b_read)){};
        ck_tile::tile_elementwise_inout([](auto& element) { element = 0; }, c);
        auto a = ck_tile::load_tile(a_global);
        auto b = ck_tile::load_tile(b_global);
        store_a(a_stored, a);
        store_b(b_stored, b);
        for (ck_tile::index_t left = num_loop - 1; left > 0; --left) {
            ck_tile::move_tile_window(a_global, step<transposes_a>);
            ck_tile::move_tile_window(b_global, step<transposes_b>);
            a = ck_tile::load_tile(a_global);
            b = ck_tile::load_tile(b_global);
            ck_tile::block_sync_lds();
            block_gemm(c, a_read, b_read);
            ck_tile::block_sync_lds();
            store_a(a_stored, a);
            store_b(b_stored, b);
        }
        ck_tile::block_sync_lds();
        block_gemm(c, a_read, b_read);
        ck_tile::block_sync_lds();
        return c;
    }
};

}  // namespace ckh
