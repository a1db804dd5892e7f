/* Flat, global and scratch memory. */
#include "atomics.h"

enum Width { UNSIGNED, SIGNED, LOW, HIGH, SIGNED_LOW, SIGNED_HIGH, STORE, STORE_HIGH };
enum Segment { FLAT, SCRATCH, GLOBAL };
/* name, bytes, what is read or written */
#define ACCESSES(X) \
    X(load_ubyte, 1, UNSIGNED) X(load_sbyte, 1, SIGNED) X(load_ushort, 2, UNSIGNED) X(load_sshort, 2, SIGNED) \
    X(load_dword, 4, UNSIGNED) X(load_dwordx2, 8, UNSIGNED) X(load_dwordx3, 12, UNSIGNED) \
    X(load_dwordx4, 16, UNSIGNED) X(load_ubyte_d16, 1, LOW) X(load_ubyte_d16_hi, 1, HIGH) \
    X(load_sbyte_d16, 1, SIGNED_LOW) X(load_sbyte_d16_hi, 1, SIGNED_HIGH) X(load_short_d16, 2, LOW) \
    X(load_short_d16_hi, 2, HIGH) X(store_byte, 1, STORE) X(store_byte_d16_hi, 1, STORE_HIGH) \
    X(store_short, 2, STORE) X(store_short_d16_hi, 2, STORE_HIGH) X(store_dword, 4, STORE) \
    X(store_dwordx2, 8, STORE) X(store_dwordx3, 12, STORE) X(store_dwordx4, 16, STORE)

/* Where a lane's access goes, or NULL after a fault. */
static char* place(State* t, const Inst* i, enum Segment segment, u32 lane, int bytes, enum Touch kind) {
    const u32 w0 = i->w[0], w1 = i->w[1], addr = w1 & 0xff, saddr = w1 >> 16 & 0x7f;
    const u32* v = &t->vgpr[addr * LANES + lane];
    i64 offset = (i64)((u64)(w0 & 0x1fff) << 51) >> 51;
    u64 at;
    if (segment == SCRATCH) {
        at = (u64)offset + (w0 >> 13 & 1 ? v[0] : 0) + (saddr == 0x7f ? 0 : t->sgpr[saddr]);
    } else if (segment == GLOBAL) {
        at = (saddr == 0x7f ? v[0] | (u64)v[LANES] << 32 : sgpr_pair(t, saddr) + v[0]) + (u64)offset;
        return may_touch_memory(t, lane, at, (u32)bytes) ? (char*)at : NULL;
    } else {
        at = (v[0] | (u64)v[LANES] << 32) + (w0 & 0xfff);
        if (at >> 32 == SHARED_APERTURE >> 32) return may_touch(t, lane, (u32)at, (u32)bytes, kind) ? t->lds + (u32)at : NULL;
        if (at >> 32 != PRIVATE_APERTURE >> 32) return may_touch_memory(t, lane, at, (u32)bytes) ? (char*)at : NULL;
    }
    at = (u32)at;
    if (at + (u64)bytes > t->scratch_bytes) { fault(SCRATCH_RANGE, t, lane, (u32)at, 0, 0); return NULL; }
    return t->scratch + (u64)lane * t->scratch_bytes + at;
}

static void uses_address(const State* t, const Inst* i, enum Segment segment) {
    const u32 w1 = i->w[1], saddr = w1 >> 16 & 0x7f, has_saddr = segment != FLAT && saddr != 0x7f;
    if (has_saddr) uses(t, SGPR_AT + saddr, segment == GLOBAL ? 2 : 1);
    uses(t, w1 & 0xff, segment == SCRATCH ? i->w[0] >> 13 & 1 : has_saddr ? 1 : 2);
}

static inline void access_memory(State* t, const Inst* i, enum Segment segment) {
    const u32 w1 = i->w[1], data = w1 >> 8 & 0xff, vdst = w1 >> 24;
    const int bytes = i->op->a;
    const enum Width how = (enum Width)i->op->b;
    const u64 exec = exec_of(t);
    u32* file = w1 >> 23 & 1 ? t->acc : t->vgpr;
    const u32 dwords = (u32)(bytes + 3) / 4;
    if (segment != SCRATCH && i->w[0] >> 13 & 1 && segment == FLAT) { not_emulated(t); return; }
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        char* at = place(t, i, segment, lane, bytes, how >= STORE ? WRITE : READ);
        if (!at) return;
        u32 x[4] = {0};
        if (how >= STORE) {
            for (u32 n = 0; n < dwords; ++n) x[n] = file[(data + n) * LANES + lane];
            if (how == STORE_HIGH) x[0] >>= 16;
            memcpy(at, x, (size_t)bytes);
            continue;
        }
        u32* to = &file[vdst * LANES + lane];
        memcpy(x, at, (size_t)bytes);
        if (how == SIGNED || how == SIGNED_LOW || how == SIGNED_HIGH) x[0] = bytes == 1 ? (u32)(i32)(int8_t)x[0] : (u32)(i32)(int16_t)x[0];
        if (how == LOW || how == SIGNED_LOW) x[0] = (*to & 0xffff0000u) | (x[0] & 0xffff);
        if (how == HIGH || how == SIGNED_HIGH) x[0] = (*to & 0xffff) | x[0] << 16;
        for (u32 n = 0; n < dwords; ++n) to[n * LANES] = x[n];
    }
    const u32 keep = how == LOW || how == SIGNED_LOW ? 0xffff0000u : how == HIGH || how == SIGNED_HIGH ? 0xffffu : 0;
    if (segment == FLAT) under_way(t, LGKM);
    uses_address(t, i, segment);
    if (how < STORE) { arrives_late(t, VM, file, vdst, dwords, keep); return; }
    uses_vector(t, file, data, dwords);
    under_way(t, VM);
}
static void run_flat(State* t, const Inst* i) { access_memory(t, i, FLAT); }
static void run_scratch(State* t, const Inst* i) { access_memory(t, i, SCRATCH); }
static void run_global(State* t, const Inst* i) { access_memory(t, i, GLOBAL); }

/* To LDS: M0 and the instruction's offset say where, and lanes follow one another. */
static void run_global_to_lds(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 bytes = (u32)i->op->a, dwords = (bytes + 3) / 4, offset = (u32)((i64)((u64)(i->w[0] & 0x1fff) << 51) >> 51);
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!is_on(exec, lane)) continue;
        const u32 to = (t->sgpr[M0] & 0xffff) + offset + lane * dwords * 4;
        const char* at = place(t, i, GLOBAL, lane, (int)bytes, READ);
        if (!at || !may_touch(t, lane, to, dwords * 4, WRITE)) return;
        memset(t->lds + to, 0, dwords * 4);
        memcpy(t->lds + to, at, bytes);
    }
    uses_address(t, i, GLOBAL);
    arrives_late_in_lds(t);
}

static void atomic_memory(State* t, const Inst* i, enum Segment segment) {
    const u64 exec = exec_of(t);
    const u32 w0 = i->w[0], w1 = i->w[1], data = w1 >> 8 & 0xff, vdst = w1 >> 24, returns = w0 >> 16 & 1;
    const int bytes = i->op->b;
    const u32 words = (u32)bytes / 4;
    u32* file = w1 >> 23 & 1 ? t->acc : t->vgpr;
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        char* at = place(t, i, segment, lane, bytes, ATOMIC);
        if (!at) return;
        const u32* d = &file[data * LANES + lane];
        u64 old = 0, wanted = 0, given = d[0];
        memcpy(&old, at, (size_t)bytes);
        if (words == 2) given |= (u64)d[LANES] << 32;
        if (i->op->a == CMPSWAP) wanted = d[words * LANES] | (words == 2 ? (u64)d[3 * LANES] << 32 : 0);
        const u64 now = atomic((enum Atomic)i->op->a, old, given, wanted, bytes);
        memcpy(at, &now, (size_t)bytes);
        if (returns)
            for (u32 n = 0; n < words; ++n) file[(vdst + n) * LANES + lane] = (u32)(old >> (32 * n));
    }
    if (segment == FLAT) under_way(t, LGKM);
    uses_address(t, i, segment), uses_vector(t, file, data, words);
    if (returns) arrives_late(t, VM, file, vdst, words, 0);
    else under_way(t, VM);
}
static void run_flat_atomic(State* t, const Inst* i) { atomic_memory(t, i, FLAT); }
static void run_global_atomic(State* t, const Inst* i) { atomic_memory(t, i, GLOBAL); }

#define X(name, bytes, how) {#name, run_flat, 0, "", bytes, how},
static const Op FLAT_OPS[] = {ACCESSES(X)
#undef X
#define X(name, what, bytes) {name, run_flat_atomic, 0, "", what, bytes},
    ATOMICS(X)};
#undef X
#define X(name, bytes, how) {#name, run_scratch, 0, "", bytes, how},
static const Op SCRATCH_OPS[] = {ACCESSES(X)};
#undef X
#define X(name, bytes, how) {#name, run_global, 0, "", bytes, how},
static const Op GLOBAL_OPS[] = {ACCESSES(X)
#undef X
#define X(name, what, bytes) {name, run_global_atomic, 0, "", what, bytes},
    ATOMICS(X)
#undef X
    {"load_lds_ubyte", run_global_to_lds, 0, "", 1, 0}, {"load_lds_ushort", run_global_to_lds, 0, "", 2, 0},
    {"load_lds_dword", run_global_to_lds, 0, "", 4, 0}, {"load_lds_dwordx3", run_global_to_lds, 0, "", 12, 0},
    {"load_lds_dwordx4", run_global_to_lds, 0, "", 16, 0}};

const Op* memory_op(u32 segment, const char* name) {
    switch (segment) {
        case FLAT: return op_in(FLAT_OPS, sizeof FLAT_OPS / sizeof *FLAT_OPS, name);
        case SCRATCH: return op_in(SCRATCH_OPS, sizeof SCRATCH_OPS / sizeof *SCRATCH_OPS, name);
        case GLOBAL: return op_in(GLOBAL_OPS, sizeof GLOBAL_OPS / sizeof *GLOBAL_OPS, name);
        default: return NULL;
    }
}
