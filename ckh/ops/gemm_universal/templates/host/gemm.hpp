// One matrix product, tile by tile in the order of nest.hpp.
//
// What is staged depends on how an operand lies in memory:
//
//   A in place   row-major: a table of the rows' addresses; column-major: nothing
//   A packed     a copy of the tile in the order it has, at a distance of rows (columns) known to the compiler
//   B in place   row-major: nothing, but columns that do not fill a register block are copied;
//                column-major: dot products (dot_products.hpp), for which a column-major A is transposed
//   B packed     panels of kColumns columns, one row per step of K; a column-major B is transposed
//
// compv4 stages the next tile before it uses the current one; mem prefetches the next tile of A. What a register block
// reads of a column-major A in place, and a vector at the end of a row, may lie up to kRows floats or a vector behind an
// operand: in the readable tail that the interface promises.
#pragma once

#include "dot_products.hpp"
#include "gemm_problem.hpp"
#include "pack_operand.hpp"
#include "product_block.hpp"
#include "workspace.hpp"

namespace ckh {

constexpr bool kUsesDots = kBInPlace && !kernel::b_row_major;
constexpr bool kTransposesA = kUsesDots && !kernel::a_row_major;
constexpr bool kHasRowTable = kUsesDots || (kernel::a_row_major && !kPacksA);
// A dot product's lanes run along K, so there tile_k counts vectors.
constexpr int64_t kTileSteps = kUsesDots ? int64_t{kTileK} * kLanes : kTileK;
constexpr int64_t kTransposedStride = kTileSteps + kLanes;

class Gemm {
  public:
    Gemm(const GemmProblem& problem, Workspace& workspace) : p_(problem) {
        m_tiles = divide_up(p_.m, kTileM);
        n_tiles = divide_up(p_.n, kTileN);
        k_tiles = divide_up(p_.k, kTileSteps);
        a_stride_ = kernel::a_row_major ? p_.k : p_.m;
        b_stride_ = kernel::b_row_major ? p_.n : p_.k;
        depth_ = minimum(p_.k, kTileSteps);
        blocks_ = divide_up(minimum(p_.n, kTileN), kColumns);
        target_ = workspace.take<int64_t>(kTableRows);
        for (int buffer = 0; buffer < kBuffers; ++buffer) allocate(workspace, buffer);
        if (kPacksBUpFront) b_panels_ = workspace.floats(n_tiles * k_tiles * panel_size());
        if (kBInPlace && !kUsesDots && kHasEdgeN) edge_ = workspace.floats(depth_ * kColumns);
    }

    void run(const float* a, const float* b, float* c) {
        a_ = a;
        b_ = b;
        c_ = c;
        for (int64_t i = 0; i < kTableRows; ++i) target_[i] = i * p_.n;
        if (kPacksBUpFront) {
            for (int64_t n = 0; n < n_tiles; ++n) {
                for (int64_t k = 0; k < k_tiles; ++k) pack_b(up_front(n, k), n, k);
            }
        }
        run_nest(*this, kernel::shares_a);
    }

    int64_t m_tiles = 0, n_tiles = 0, k_tiles = 0;

    CKH_NOINLINE void stage_a(int buffer, int64_t m, int64_t, int64_t k) {
        const float* from = tile_of_a(m, k);
        if constexpr (kPrefetches) prefetch_a(m + 1 < m_tiles ? m + 1 : 0, k);
        if constexpr (kPacksA && kernel::a_row_major) {
            copy_rows<kernel::vector_a>(a_panel_[buffer], kRowStride, from, a_stride_, rows_of(m), steps(k));
        } else if constexpr (kPacksA) {
            copy_rows<kernel::vector_a>(a_panel_[buffer], kColumnStride, from, a_stride_, steps(k), rows_of(m));
        } else if constexpr (kTransposesA) {
            copy_transposed<kernel::vector_a>(a_panel_[buffer], kTransposedStride, from, a_stride_, steps(k), rows_of(m));
        }
        if constexpr (kHasRowTable) {
            const float* first = kTransposesA ? a_panel_[buffer] : from;
            const int64_t stride = kTransposesA ? kTransposedStride : a_stride_;
            const int64_t last = rows_of(m) - 1;
            for (int64_t i = 0; i < kTableRows; ++i) rows_[buffer][i] = first + minimum(i, last) * stride;
        }
    }

    CKH_NOINLINE void stage_b(int buffer, int64_t n, int64_t k) {
        if constexpr (kPacksBUpFront) {
            b_current_[buffer] = up_front(n, k);
        } else if constexpr (!kBInPlace) {
            b_current_[buffer] = b_panel_[buffer];
            pack_b(b_panel_[buffer], n, k);
        } else if constexpr (!kUsesDots && kHasEdgeN) {
            const int64_t columns = columns_of(n);
            const int64_t whole = columns / kColumns * kColumns;
            if (whole < columns) {
                copy_rows<kernel::vector_b>(edge_, kColumns, row_of_b(k) + n * kTileN + whole, b_stride_, steps(k),
                                            columns - whole);
            }
        }
    }

    CKH_NOINLINE void compute(int a, int b, int64_t m, int64_t n, int64_t k) {
        constexpr int64_t step = kUsesDots ? kVectors : kColumns;
        const int64_t columns = columns_of(n);
        float* tile = c_ + m * kTileM * p_.n + n * kTileN;
        for_register_blocks(rows_of(m), columns, step, [&](auto size, int64_t row, int valid, int64_t column) {
            const Destination to{tile + row * p_.n + column, target_, columns - column, kLanes, k == 0};
            if constexpr (kUsesDots) {
                dots<decltype(size)::value>(a, row, n * kTileN + column, k, to, valid);
            } else {
                product<decltype(size)::value>(a, b, m, row, n, column, k, to, valid);
            }
        });
    }

  private:
    void allocate(Workspace& workspace, int buffer) {
        if (kHasRowTable) rows_[buffer] = workspace.take<const float*>(kTableRows);
        if (kTransposesA) {
            a_panel_[buffer] = workspace.floats(kTableRows * kTransposedStride);
        } else if (kPacksA) {
            const int64_t floats = kernel::a_row_major ? int64_t{kTableRows} * kRowStride : depth_ * kColumnStride;
            a_panel_[buffer] = workspace.floats(floats);
        }
        if (!kBInPlace && !kPacksBUpFront) b_panel_[buffer] = workspace.floats(panel_size());
    }

    int64_t rows_of(int64_t m) const { return kernel::pad_m ? minimum(kTileM, p_.m - m * kTileM) : kTileM; }
    int64_t columns_of(int64_t n) const { return minimum(kTileN, p_.n - n * kTileN); }
    int64_t steps(int64_t k) const { return minimum(kTileSteps, p_.k - k * kTileSteps); }
    int64_t panel_size() const { return blocks_ * depth_ * kColumns; }
    float* up_front(int64_t n, int64_t k) const { return b_panels_ + (n * k_tiles + k) * panel_size(); }

    const float* tile_of_a(int64_t m, int64_t k) const {
        const int64_t row = m * kTileM;
        const int64_t step = k * kTileSteps;
        return kernel::a_row_major ? a_ + row * a_stride_ + step : a_ + step * a_stride_ + row;
    }

    const float* row_of_b(int64_t k) const { return b_ + k * kTileSteps * b_stride_; }

    void prefetch_a(int64_t m, int64_t k) const {
        const float* from = tile_of_a(m, k);
        const int64_t lines = kernel::a_row_major ? rows_of(m) : steps(k);
        const int64_t length = kernel::a_row_major ? steps(k) : rows_of(m);
        for (int64_t i = 0; i < lines; ++i) {
            for (int64_t j = 0; j < length; j += kLineFloats) __builtin_prefetch(from + i * a_stride_ + j, 0, kSecondLevel);
        }
    }

    void pack_b(float* panel, int64_t n, int64_t k) const {
        const int64_t columns = columns_of(n);
        for (int64_t column = 0; column < columns; column += kColumns, panel += depth_ * kColumns) {
            const int64_t first = n * kTileN + column;
            const int64_t present = minimum(columns - column, kColumns);
            if constexpr (kernel::b_row_major) {
                copy_rows<kernel::vector_b>(panel, kColumns, row_of_b(k) + first, b_stride_, steps(k), present);
            } else {
                const float* from = b_ + first * b_stride_ + k * kTileSteps;
                copy_transposed<kernel::vector_b>(panel, kColumns, from, b_stride_, present, steps(k));
            }
        }
    }

    template <int Rows>
    CKH_INLINE void dots(int a, int64_t row, int64_t first, int64_t k, const Destination& to, int valid) const {
        const float* columns[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            const int64_t column = kHasEdgeN ? minimum(first + v, p_.n - 1) : first + v;
            columns[v] = b_ + column * b_stride_ + k * kTileSteps;
        }
        dot_products<Rows>(rows_[a] + row, columns, steps(k), to, valid);
    }

    template <int Rows>
    CKH_INLINE void product(int a, int b, int64_t m, int64_t row, int64_t n, int64_t column, int64_t k, const Destination& to,
                            int valid) const {
        BlockOfA block{nullptr, nullptr, a_stride_};
        if constexpr (kHasRowTable) {
            block.rows = rows_[a] + row;
        } else if constexpr (kPacksA) {
            block.first = a_panel_[a] + row * (kernel::a_row_major ? kRowStride : 1);
        } else {
            block.first = tile_of_a(m, k) + row;
        }
        if constexpr (!kBInPlace) {
            product_block<Rows>(block, b_current_[b] + column * depth_, kColumns, steps(k), to, valid);
        } else if (kHasEdgeN && to.columns < kColumns) {
            product_block<Rows>(block, edge_, kColumns, steps(k), to, valid);
        } else {
            product_block<Rows>(block, row_of_b(k) + n * kTileN + column, b_stride_, steps(k), to, valid);
        }
    }

    static constexpr int64_t kLineFloats = 16;  // of a line of the cache
    static constexpr int kSecondLevel = 2;      // the cache that __builtin_prefetch is to fill

    GemmProblem p_;
    int64_t a_stride_, b_stride_;  // between rows, or columns of a column-major operand
    int64_t depth_, blocks_;       // of a panel: steps of K, blocks of kColumns columns
    int64_t* target_;
    const float** rows_[2] = {};
    float* a_panel_[2] = {};
    float* b_panel_[2] = {};
    const float* b_current_[2] = {};
    float* b_panels_ = nullptr;
    float* edge_ = nullptr;
    const float* a_ = nullptr;
    const float* b_ = nullptr;
    float* c_ = nullptr;
};

}  // namespace ckh
