// y (rows) = A (rows x cols) x (cols): `block` rows at a time, `unroll` columns at a time.
#pragma once

#include <stdint.h>
#include <time.h>

extern "C" {

struct matvec_problem {
    int64_t rows, cols;
};

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return 4; }  // a, x, y, the workspace

const char* ckh_name(void) { return kernel::name; }

const char* ckh_unsupported(const matvec_problem* p) {
    return p->cols % kernel::unroll ? "the columns are not whole steps" : nullptr;
}

int64_t ckh_workspace_bytes(const matvec_problem*) { return 0; }

int32_t ckh_run(const matvec_problem* p, void* const* operands) {
    const float *matrix = static_cast<const float*>(operands[0]), *vector = static_cast<const float*>(operands[1]);
    for (int64_t first = 0; first < p->rows; first += kernel::block) {
        float sums[kernel::block][kernel::unroll] = {};
        const int64_t left = p->rows - first, count = left < kernel::block ? left : kernel::block;
        for (int64_t column = 0; column < p->cols; column += kernel::unroll)
            for (int64_t row = 0; row < count; ++row)
                for (int64_t i = 0; i < kernel::unroll; ++i)
                    sums[row][i] += matrix[(first + row) * p->cols + column + i] * vector[column + i];
        for (int64_t row = 0; row < count; ++row) {
            float sum = 0;
            for (const float part : sums[row]) sum += part;
            static_cast<float*>(operands[2])[first + row] = sum;
        }
    }
    return 0;
}

int32_t ckh_time(const matvec_problem* p, void* const* operands, int32_t loops, int32_t samples, double* ns_per_loop) {
    for (int32_t sample = 0; sample < samples; ++sample) {
        timespec start{}, end{};
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int32_t loop = 0; loop < loops; ++loop) ckh_run(p, operands);
        clock_gettime(CLOCK_MONOTONIC, &end);
        ns_per_loop[sample] = ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / loops;
    }
    return 0;
}

}  // extern "C"
