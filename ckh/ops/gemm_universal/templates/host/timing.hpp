// The clock of `ckh_time`.
#pragma once

#include <stdint.h>
#include <time.h>

namespace ckh {

inline double nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Nanoseconds per loop of `samples` times `loops` calls; stops at the first that does not return 0, and returns that.
template <class Run>
int32_t time_loops(Run run, int32_t loops, int32_t samples, double* ns_per_loop) {
    for (int32_t sample = 0; sample < samples; ++sample) {
        const double start = nanoseconds();
        for (int32_t loop = 0; loop < loops; ++loop) {
            if (const int32_t error = run()) return error;
        }
        ns_per_loop[sample] = (nanoseconds() - start) / loops;
    }
    return 0;
}

}  // namespace ckh
