// The functions that the library of several kernels exports: those of one of them, whose number stands behind a mark in
// the file and is replaced there. To be included after a vocabulary, which says what a Problem is.
#pragma once

#include <cstdint>

#ifndef __HIP_DEVICE_COMPILE__

namespace ckh {

// The functions of one kernel.
struct Entry {
    int32_t (*abi_version)(void);
    int32_t (*operand_count)(void);
    const char* (*name)(void);
    const char* (*error)(void);
    const char* (*unsupported)(const Problem*);
    int64_t (*workspace_bytes)(const Problem*);
    int32_t (*run)(const Problem*, void* const*);
    int32_t (*time)(const Problem*, void* const*, int32_t, int32_t, double*);
    int32_t (*time_by)(int32_t, const Problem*, void* const*, int32_t, int32_t, int32_t, int32_t, double*);
    void (*set_flush)(void*, int64_t);
};

struct Chosen {
    char mark[12];
    int32_t number;
};

extern const Entry entries[];
// Read when a function is called: what is known when this is compiled is not what stands in the file later. No other
// library that is loaded shares it.
[[gnu::used]] static const volatile Chosen chosen{"ckh-chosen:", 0};

inline const Entry& entry() { return entries[chosen.number]; }

}  // namespace ckh

extern "C" {

int32_t ckh_abi_version(void) { return ckh::entry().abi_version(); }

int32_t ckh_operand_count(void) { return ckh::entry().operand_count(); }

const char* ckh_name(void) { return ckh::entry().name(); }

const char* ckh_error(void) { return ckh::entry().error(); }

const char* ckh_unsupported(const ckh::Problem* problem) { return ckh::entry().unsupported(problem); }

int64_t ckh_workspace_bytes(const ckh::Problem* problem) { return ckh::entry().workspace_bytes(problem); }

int32_t ckh_run(const ckh::Problem* problem, void* const* operands) {
    return ckh::entry().run(problem, operands);
}

int32_t ckh_time(const ckh::Problem* problem, void* const* operands, int32_t loops, int32_t samples, double* ns) {
    return ckh::entry().time(problem, operands, loops, samples, ns);
}

int32_t ckh_time_by(int32_t how, const ckh::Problem* problem, void* const* operands, int32_t count, int32_t first,
                    int32_t loops, int32_t samples, double* ns) {
    return ckh::entry().time_by(how, problem, operands, count, first, loops, samples, ns);
}

void ckh_set_flush(void* buffer, int64_t bytes) { ckh::entry().set_flush(buffer, bytes); }
}

#endif
