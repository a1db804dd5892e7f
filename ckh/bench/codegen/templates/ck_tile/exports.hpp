// The functions that a compiled kernel exports, version 1. All pointers are of the device. The same for all operations:
// what includes this has said what a Problem is, why one is refused (reason_unsupported), how a launch is prepared
// (prepare), what has to be zero before one (zero_result), and whether it adds to what is there (adds_to_result).
#pragma once

#include <cstring>
#include <exception>
#include <string>

#include "check.hpp"

namespace ckh {

inline thread_local std::string last_error;

inline void* flush_buffer = nullptr;
inline int64_t flush_bytes = 0;

// Runs work; 0, or 1 with the reason in last_error.
template <class Work>
int32_t guarded(Work work) {
    try {
        last_error.clear();
        work();
        return 0;
    } catch (const std::exception& error) {
        last_error = error.what();
    } catch (...) {
        last_error = "unknown exception";
    }
    return 1;
}

struct Event {
    hipEvent_t event{};
    Event() { check(hipEventCreate(&event), "hipEventCreate"); }
    ~Event() { static_cast<void>(hipEventDestroy(event)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record() { check(hipEventRecord(event, nullptr), "hipEventRecord"); }
};

inline void launch(const Problem& p, const Operands& operands) {
    zero_result(p, operands, nullptr);
    prepare(p, operands)(nullptr);
}

// Milliseconds of `loops` launches between two events.
inline double timed(const Launch& start_kernel, int32_t loops, Event& start, Event& stop) {
    start.record();
    for (int32_t i = 0; i < loops; ++i) start_kernel(nullptr);
    stop.record();
    check(hipEventSynchronize(stop.event), "hipEventSynchronize");
    float elapsed_ms = 0;
    check(hipEventElapsedTime(&elapsed_ms, start.event, stop.event), "hipEventElapsedTime");
    return elapsed_ms;
}

inline double sample_ns(const Launch& start_kernel, int32_t loops, Event& start, Event& stop) {
    if (flush_bytes == 0) return timed(start_kernel, loops, start, stop) * 1e6 / loops;
    double total_ms = 0;
    for (int32_t i = 0; i < loops; ++i) {
        check(hipMemsetAsync(flush_buffer, i & 0xff, static_cast<size_t>(flush_bytes), nullptr), "hipMemsetAsync");
        total_ms += timed(start_kernel, 1, start, stop);
    }
    return total_ms * 1e6 / loops;
}

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return 1; }

const char* ckh_name(void) { return std::strchr(ckh::kernel::label, ':') + 1; }

const char* ckh_error(void) { return ckh::last_error.c_str(); }

const char* ckh_unsupported(const ckh::Problem* problem) {
    const char* reason = nullptr;
    const int32_t code = ckh::guarded([&] { reason = ckh::reason_unsupported(*problem); });
    return code ? ckh::last_error.c_str() : reason;
}

int64_t ckh_workspace_bytes(const ckh::Problem* problem) { return ckh::workspace_bytes(*problem); }

int32_t ckh_run(const ckh::Problem* problem, const void* a, const void* b, void* out, void* workspace) {
    return ckh::guarded([&] {
        ckh::launch(*problem, {a, b, out, workspace});
        ckh::check(hipGetLastError(), "launch");
        ckh::check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    });
}

// Times the kernel alone: its arguments are made before, and what must be zero before a launch is not zeroed between
// launches. What is added to what is there is then no result; a last launch, which is not timed, leaves one.
int32_t ckh_time(const ckh::Problem* problem, const void* a, const void* b, void* out, void* workspace, int32_t loops,
                 int32_t samples, double* ns) {
    return ckh::guarded([&] {
        ckh::Event start, stop;
        const ckh::Operands operands{a, b, out, workspace};
        const ckh::Launch start_kernel = ckh::prepare(*problem, operands);
        for (int32_t i = 0; i < samples; ++i) ns[i] = ckh::sample_ns(start_kernel, loops, start, stop);
        if (ckh::adds_to_result(*problem)) ckh::launch(*problem, operands);
    });
}

void ckh_set_flush(void* buffer, int64_t bytes) {
    ckh::flush_buffer = buffer;
    ckh::flush_bytes = buffer == nullptr ? 0 : bytes;
}
}
