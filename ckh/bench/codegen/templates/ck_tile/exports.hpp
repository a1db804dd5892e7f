// The functions that a compiled kernel exports, version 2. All pointers are of the device. The same for all operations:
// the including header has defined Problem, Operands (a struct of pointers: inputs in order, the output, the workspace),
// why a problem is refused (reason_unsupported), how a launch is prepared (prepare), what must be zero before one
// (zero_result), and whether it adds to its output (adds_to_result).
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

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

inline void launch(const Problem& p, const Operands& operands) {
    zero_result(p, operands, nullptr);
    prepare(p, operands)(nullptr);
}

using Launches = std::vector<Launch>;

// How launches are timed, as bits: started by a graph and not one by one; of a kernel that does nothing.
constexpr int32_t by_graph = 1, of_nothing = 2;

struct Event {
    hipEvent_t event{};
    Event() { check(hipEventCreate(&event), "hipEventCreate"); }
    ~Event() { static_cast<void>(hipEventDestroy(event)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(hipStream_t stream) { check(hipEventRecord(event, stream), "hipEventRecord"); }
};

struct Timer {
    Event start, stop;

    // Milliseconds that the GPU takes for what `work` puts into a stream.
    template <class Work>
    double ms(hipStream_t stream, Work work) {
        start.record(stream);
        work();
        stop.record(stream);
        check(hipEventSynchronize(stop.event), "hipEventSynchronize");
        float elapsed_ms = 0;
        check(hipEventElapsedTime(&elapsed_ms, start.event, stop.event), "hipEventElapsedTime");
        return elapsed_ms;
    }
};

// Launches that the host starts as one, as often as it is called; each of those given occurs equally often.
class Graph {
  public:
    explicit Graph(const Launches& launches) {
        const auto given = static_cast<int32_t>(launches.size());
        size = (least + given - 1) / given * given;
        check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags");
        // A graph that cannot be made is destroyed like one that can: what is not there yet is null.
        if (guarded([&] { capture(launches); }) != 0) {
            destroy();
            static_cast<void>(hipGetLastError());  // not the next kernel's
            throw std::runtime_error(std::string(last_error));
        }
    }
    ~Graph() { destroy(); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void start() const { check(hipGraphLaunch(executable, stream), "hipGraphLaunch"); }

    hipStream_t stream{};
    int32_t size = 0;

  private:
    static constexpr int32_t least = 32;

    void capture(const Launches& launches) {
        check(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed), "hipStreamBeginCapture");
        const int32_t failed = guarded([&] {
            for (int32_t i = 0; i < size; ++i) launches[static_cast<size_t>(i) % launches.size()](stream);
        });
        check(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
        if (failed != 0) throw std::runtime_error(std::string(last_error));
        check(hipGraphInstantiateWithFlags(&executable, graph, 0), "hipGraphInstantiateWithFlags");
        start();  // the first one uploads it
        check(hipStreamSynchronize(stream), "hipStreamSynchronize");
    }

    void destroy() {
        if (executable != nullptr) static_cast<void>(hipGraphExecDestroy(executable));
        if (graph != nullptr) static_cast<void>(hipGraphDestroy(graph));
        if (stream != nullptr) static_cast<void>(hipStreamDestroy(stream));
        executable = nullptr, graph = nullptr, stream = nullptr;
    }

    hipGraph_t graph{};
    hipGraphExec_t executable{};
};

// ns of a launch in each of the samples, of at least `loops` launches, all started by a graph.
inline void time_graph(const Launches& launches, int32_t loops, int32_t samples, double* ns) {
    const Graph graph(launches);
    Timer timer;
    const int32_t starts = (loops + graph.size - 1) / graph.size;
    for (int32_t sample = 0; sample < samples; ++sample) {
        const double ms = timer.ms(graph.stream, [&] {
            for (int32_t i = 0; i < starts; ++i) graph.start();
        });
        ns[sample] = ms * 1e6 / (static_cast<double>(starts) * graph.size);
    }
}

// The same of launches one by one, in turns over all samples. Where caches are to be emptied, they are before each, and
// each launch is timed alone.
inline void time_launches(const Launches& launches, int32_t loops, int32_t samples, double* ns) {
    Timer timer;
    size_t next = 0;
    const auto start = [&] { launches[next++ % launches.size()](nullptr); };
    for (int32_t sample = 0; sample < samples; ++sample) {
        double total_ms = 0;
        if (flush_bytes == 0) {
            total_ms = timer.ms(nullptr, [&] {
                for (int32_t i = 0; i < loops; ++i) start();
            });
        }
        for (int32_t i = 0; i < loops && flush_bytes != 0; ++i) {
            check(hipMemsetAsync(flush_buffer, i & 0xff, static_cast<size_t>(flush_bytes), nullptr), "hipMemsetAsync");
            total_ms += timer.ms(nullptr, start);
        }
        ns[sample] = total_ms * 1e6 / loops;
    }
}

// The sets of operands, which callers pass as pointers one after the other.
inline const Operands* operands_of(void* const* pointers) { return reinterpret_cast<const Operands*>(pointers); }

// One launch for each set of operands from `first` on, of as many as there are launches to be timed.
inline Launches prepared(const Problem& p, const Operands* operands, int32_t count, int32_t first, int64_t timed) {
    Launches launches;
    for (int32_t i = 0; i < std::min<int64_t>(count, timed); ++i) {
        launches.push_back(prepare(p, operands[(first + i) % count]));
    }
    return launches;
}

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return 2; }

int32_t ckh_operand_count(void) { return sizeof(ckh::Operands) / sizeof(void*); }

const char* ckh_name(void) { return std::strchr(ckh::kernel::label, ':') + 1; }

const char* ckh_error(void) { return ckh::last_error.c_str(); }

const char* ckh_unsupported(const ckh::Problem* problem) {
    const char* reason = nullptr;
    const int32_t code = ckh::guarded([&] { reason = ckh::reason_unsupported(*problem); });
    return code ? ckh::last_error.c_str() : reason;
}

int64_t ckh_workspace_bytes(const ckh::Problem* problem) { return ckh::workspace_bytes(*problem); }

int32_t ckh_run(const ckh::Problem* problem, void* const* operands) {
    return ckh::guarded([&] {
        ckh::launch(*problem, *ckh::operands_of(operands));
        ckh::check(hipGetLastError(), "launch");
        ckh::check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    });
}

// Times the kernel alone: its arguments are made before, and what must be zero before a launch is not zeroed between
// launches. What is added to what is there is then no result; a last launch, which is not timed, leaves one in the first
// set of operands. Launches take turns with `count` sets, beginning with number `first`.
int32_t ckh_time_by(int32_t how, const ckh::Problem* problem, void* const* operands, int32_t count, int32_t first,
                    int32_t loops, int32_t samples, double* ns) {
    return ckh::guarded([&] {
        const int64_t timed = static_cast<int64_t>(loops) * samples;
        const bool is_empty = (how & ckh::of_nothing) != 0;
        const ckh::Launches launches = is_empty ? ckh::Launches{ckh::launch_of(ckh::empty_kernel, dim3(1), dim3(64), 0)}
                                                : ckh::prepared(*problem, ckh::operands_of(operands), count, first, timed);
        const auto time = (how & ckh::by_graph) != 0 ? ckh::time_graph : ckh::time_launches;
        time(launches, loops, samples, ns);
        if (!is_empty && ckh::adds_to_result(*problem)) ckh::launch(*problem, *ckh::operands_of(operands));
    });
}

int32_t ckh_time(const ckh::Problem* problem, void* const* operands, int32_t loops, int32_t samples, double* ns) {
    return ckh_time_by(0, problem, operands, 1, 0, loops, samples, ns);
}

void ckh_set_flush(void* buffer, int64_t bytes) {
    ckh::flush_buffer = buffer;
    ckh::flush_bytes = buffer == nullptr ? 0 : bytes;
}
}
