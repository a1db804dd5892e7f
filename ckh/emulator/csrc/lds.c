/* LDS, with a detector of races: two waves touch a byte between the same two barriers, and one of them writes. */
#include <stdlib.h>

#include "atomics.h"

typedef struct { u32 epoch, wave; u64 pc; } Toucher;
static Toucher touched[3][LDS_MOST][2]; /* each byte, for each kind: by the first wave since a barrier, and by another one */
static u32 lds_size;
void set_lds_size(u32 bytes) { lds_size = bytes < LDS_MOST ? bytes : LDS_MOST; }
int emu_detect_races = 1;

/* Who else touched it since the last barrier, or NULL. */
static inline const Toucher* other(int kind, u32 at) {
    const Toucher* t = touched[kind][at];
    if (t[0].epoch != epoch) return NULL;
    if (t[0].wave != this_wave) return &t[0];
    return t[1].epoch == epoch ? &t[1] : NULL;
}

/* Two waves touch a byte between the same two barriers, and at least one writes: who is first is left to chance. */
int may_touch(State* t, u32 lane, u32 at, u32 bytes, enum Touch kind) {
    if (at + bytes > lds_size || at + bytes < at) { fault(LDS_RANGE, t, lane, at, 0, 0); return 0; }
    t->touched[t->touched_count++] = (Touched){at, (uint8_t)lane, (uint8_t)bytes, (uint8_t)kind};
    if (!emu_detect_races) return 1;
    for (u32 i = at; i < at + bytes; ++i) {
        const Toucher *w = other(WRITE, i), *r = kind == READ ? NULL : other(READ, i), *a = kind == ATOMIC ? NULL : other(ATOMIC, i);
        const Toucher* who = w ? w : a ? a : r;
        if (who) fault(kind == READ ? RACE_READ : RACE_WRITE, t, lane, i, who->wave, who->pc);
        Toucher* mine = touched[kind][i];
        mine[mine[0].epoch == epoch && mine[0].wave != this_wave] = (Toucher){epoch, this_wave, t->pc};
    }
    return 1;
}

/* parts of `bytes` each at one or two offsets, which count `unit` bytes (0: one offset of 16 bits). */
static inline void lds_write(State* t, const Inst* i, int bytes, int shift, u32 unit) {
    const u64 exec = exec_of(t);
    const u32 w0 = i->w[0], w1 = i->w[1];
    const u32* file = w0 >> 25 & 1 ? t->acc : t->vgpr;
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        for (u32 which = 0; which < (unit ? 2u : 1u); ++which) {
            const u32 offset = unit ? (which ? w0 >> 8 & 0xff : w0 & 0xff) * unit : w0 & 0xffff;
            const u32 at = t->vgpr[(w1 & 0xff) * LANES + lane] + offset, reg = which ? w1 >> 16 & 0xff : w1 >> 8 & 0xff;
            u32 data[4];
            for (int n = 0; n < (bytes + 3) / 4; ++n) data[n] = file[(reg + (u32)n) * LANES + lane] >> shift;
            if (may_touch(t, lane, at, (u32)bytes, WRITE)) memcpy(t->lds + at, data, (size_t)bytes);
        }
    }
    uses(t, w1 & 0xff, 1), uses_vector(t, file, w1 >> 8 & 0xff, (u32)(bytes + 3) / 4);
    if (unit) uses_vector(t, file, w1 >> 16 & 0xff, (u32)(bytes + 3) / 4);
    under_way(t, LGKM);
}

static inline void lds_read(State* t, const Inst* i, int bytes, int is_signed, int d16, u32 unit) {
    const u64 exec = exec_of(t);
    const u32 w0 = i->w[0], w1 = i->w[1];
    u32* file = w0 >> 25 & 1 ? t->acc : t->vgpr;
    const u32 vdst = w1 >> 24, dwords = (u32)(bytes + 3) / 4;
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        u32 data[8] = {0};
        for (u32 which = 0; which < (unit ? 2u : 1u); ++which) {
            const u32 offset = unit ? (which ? w0 >> 8 & 0xff : w0 & 0xff) * unit : w0 & 0xffff;
            const u32 at = t->vgpr[(w1 & 0xff) * LANES + lane] + offset;
            if (may_touch(t, lane, at, (u32)bytes, READ)) memcpy(data + which * dwords, t->lds + at, (size_t)bytes);
        }
        if (is_signed) data[0] = bytes == 1 ? (u32)(i32)(int8_t)data[0] : (u32)(i32)(int16_t)data[0];
        u32* to = &file[vdst * LANES + lane];
        if (d16 == 1) data[0] = (*to & 0xffff0000u) | (data[0] & 0xffff);
        if (d16 == 2) data[0] = (*to & 0xffff) | data[0] << 16;
        for (u32 n = 0; n < dwords * (unit ? 2 : 1); ++n) to[n * LANES] = data[n];
    }
    uses(t, w1 & 0xff, 1);
    arrives_late(t, LGKM, file, vdst, dwords * (unit ? 2 : 1), d16 == 1 ? 0xffff0000u : d16 == 2 ? 0xffffu : 0);
}

/* name, bytes, shift, unit */
#define LDS_WRITES(X) \
    X(write_b8, 1, 0, 0) X(write_b8_d16_hi, 1, 16, 0) X(write_b16, 2, 0, 0) X(write_b16_d16_hi, 2, 16, 0) X(write_b32, 4, 0, 0) \
    X(write_b64, 8, 0, 0) X(write_b96, 12, 0, 0) X(write_b128, 16, 0, 0) X(write2_b32, 4, 0, 4) X(write2st64_b32, 4, 0, 256) \
    X(write2_b64, 8, 0, 8) X(write2st64_b64, 8, 0, 512)
/* name, bytes, whether signed, which half, unit */
#define LDS_READS(X) \
    X(read_u8, 1, 0, 0, 0) X(read_i8, 1, 1, 0, 0) X(read_u16, 2, 0, 0, 0) X(read_i16, 2, 1, 0, 0) X(read_u8_d16, 1, 0, 1, 0) \
    X(read_u8_d16_hi, 1, 0, 2, 0) X(read_i8_d16, 1, 1, 1, 0) X(read_i8_d16_hi, 1, 1, 2, 0) X(read_u16_d16, 2, 0, 1, 0) \
    X(read_u16_d16_hi, 2, 0, 2, 0) X(read_b32, 4, 0, 0, 0) X(read_b64, 8, 0, 0, 0) X(read_b96, 12, 0, 0, 0) X(read_b128, 16, 0, 0, 0) \
    X(read2_b32, 4, 0, 0, 4) X(read2st64_b32, 4, 0, 0, 256) X(read2_b64, 8, 0, 0, 8) X(read2st64_b64, 8, 0, 0, 512)
#define X(name, bytes, shift, unit) static void run_ds_##name(State* t, const Inst* i) { lds_write(t, i, bytes, shift, unit); }
LDS_WRITES(X)
#undef X
#define X(name, bytes, is_signed, d16, unit) static void run_ds_##name(State* t, const Inst* i) { lds_read(t, i, bytes, is_signed, d16, unit); }
LDS_READS(X)
#undef X

/* LDS atomics: a is what, b the bytes, negative where the old value is returned. */
static void run_ds_atomic(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 w0 = i->w[0], w1 = i->w[1];
    const int bytes = abs(i->op->b);
    u32* file = w0 >> 25 & 1 ? t->acc : t->vgpr;
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        const u32 at = t->vgpr[(w1 & 0xff) * LANES + lane] + (w0 & 0xffff), *d = &file[(w1 >> 8 & 0xff) * LANES + lane];
        const u32 *e = &file[(w1 >> 16 & 0xff) * LANES + lane];
        if (!may_touch(t, lane, at, (u32)bytes, ATOMIC)) return;
        u64 old = 0, given = d[0] | (bytes == 8 ? (u64)d[LANES] << 32 : 0), wanted = 0;
        if (i->op->a == CMPSWAP) wanted = given, given = e[0] | (bytes == 8 ? (u64)e[LANES] << 32 : 0);
        memcpy(&old, t->lds + at, (size_t)bytes);
        const u64 now = atomic((enum Atomic)i->op->a, old, given, wanted, bytes);
        memcpy(t->lds + at, &now, (size_t)bytes);
        if (i->op->b < 0)
            for (u32 n = 0; n < (u32)bytes / 4; ++n) file[((w1 >> 24) + n) * LANES + lane] = (u32)(old >> 32 * n);
    }
    uses(t, w1 & 0xff, 1), uses_vector(t, file, w1 >> 8 & 0xff, (u32)bytes / 4);
    if (i->op->b < 0) arrives_late(t, LGKM, file, w1 >> 24, (u32)bytes / 4, 0);
    else under_way(t, LGKM);
}

/* Moves between lanes; those that are off give 0. */
static void run_ds_bpermute(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 w1 = i->w[1];
    u32 out[LANES];
    for (u32 lane = 0; lane < LANES; ++lane) {
        const u32 from = (t->vgpr[(w1 & 0xff) * LANES + lane] + (i->w[0] & 0xffff)) / 4 % LANES;
        out[lane] = exec >> from & 1 ? t->vgpr[(w1 >> 8 & 0xff) * LANES + from] : 0;
    }
    for (u32 lane = 0; lane < LANES; ++lane)
        if (exec >> lane & 1) t->vgpr[(w1 >> 24) * LANES + lane] = out[lane];
    uses(t, w1 & 0xff, 1), uses(t, w1 >> 8 & 0xff, 1);
    arrives_late(t, LGKM, t->vgpr, w1 >> 24, 1, 0);
}
static void run_ds_permute(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 w1 = i->w[1];
    u32 out[LANES] = {0};
    for (u32 lane = 0; lane < LANES; ++lane)
        if (exec >> lane & 1)
            out[(t->vgpr[(w1 & 0xff) * LANES + lane] + (i->w[0] & 0xffff)) / 4 % LANES] = t->vgpr[(w1 >> 8 & 0xff) * LANES + lane];
    for (u32 lane = 0; lane < LANES; ++lane)
        if (exec >> lane & 1) t->vgpr[(w1 >> 24) * LANES + lane] = out[lane];
    uses(t, w1 & 0xff, 1), uses(t, w1 >> 8 & 0xff, 1);
    arrives_late(t, LGKM, t->vgpr, w1 >> 24, 1, 0);
}
static void run_ds_swizzle(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 w1 = i->w[1], offset = i->w[0] & 0xffff;
    u32 out[LANES];
    if (offset >= 0xe000) { not_emulated(t); return; }
    for (u32 lane = 0; lane < LANES; ++lane) {
        const u32 from = offset & 0x8000 ? (lane & ~3u) | (offset >> 2 * (lane & 3) & 3)
                         : offset >= 0xc000 ? (lane & 32) | ((lane + (offset >> 10 & 1 ? 32 - (offset >> 5 & 31) : offset >> 5 & 31)) & 31)
                         : (lane & 32) | (((lane & offset & 31) | (offset >> 5 & 31)) ^ (offset >> 10 & 31));
        out[lane] = exec >> from & 1 ? t->vgpr[(w1 & 0xff) * LANES + from] : 0;
    }
    for (u32 lane = 0; lane < LANES; ++lane)
        if (exec >> lane & 1) t->vgpr[(w1 >> 24) * LANES + lane] = out[lane];
    uses(t, w1 & 0xff, 1);
    arrives_late(t, LGKM, t->vgpr, w1 >> 24, 1, 0);
}

/* gfx950: 16 lanes read a matrix of 16 columns row by row, and each gets a column. a is the bits of an element, b the bytes
   that a lane reads. */
static void run_ds_transpose(State* t, const Inst* i) {
    enum { COLUMNS = 16 };
    const u64 exec = exec_of(t);
    const u32 w1 = i->w[1], bits = (u32)i->op->a, bytes = (u32)i->op->b, rows = bytes * 8 / bits, per_row = COLUMNS / rows;
    u32* file = i->w[0] >> 25 & 1 ? t->acc : t->vgpr;
    uint8_t data[LANES][12] = {{0}};
    for (u32 lane = 0; lane < LANES; ++lane) {
        const u32 at = t->vgpr[(w1 & 0xff) * LANES + lane] + (i->w[0] & 0xffff);
        if (is_on(exec, lane) && may_touch(t, lane, at, bytes, READ)) memcpy(data[lane], t->lds + at, bytes);
    }
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!is_on(exec, lane)) continue;
        const u32 column = lane % COLUMNS;
        u32 out[3] = {0};
        for (u32 row = 0; row < rows; ++row) {
            const uint8_t* from = data[lane - column + row * per_row + column / rows];
            for (u32 n = 0; n < bits; ++n) {
                const u32 source = column % rows * bits + n, target = row * bits + n;
                out[target / 32] |= (u32)(from[source / 8] >> source % 8 & 1) << target % 32;
            }
        }
        for (u32 n = 0; n < bytes / 4; ++n) file[((w1 >> 24) + n) * LANES + lane] = out[n];
    }
    uses(t, w1 & 0xff, 1);
    arrives_late(t, LGKM, file, w1 >> 24, bytes / 4, 0);
}

static const Op OPS[] = {
#define X(name, ...) {"ds_" #name, run_ds_##name, 0, "", 0, 0},
    LDS_WRITES(X) LDS_READS(X)
#undef X
    {"ds_bpermute_b32", run_ds_bpermute, 0, "", 0, 0}, {"ds_permute_b32", run_ds_permute, 0, "", 0, 0},
    {"ds_swizzle_b32", run_ds_swizzle, 0, "", 0, 0},
    {"ds_read_b64_tr_b4", run_ds_transpose, 0, "", 4, 8}, {"ds_read_b64_tr_b8", run_ds_transpose, 0, "", 8, 8},
    {"ds_read_b64_tr_b16", run_ds_transpose, 0, "", 16, 8}, {"ds_read_b96_tr_b6", run_ds_transpose, 0, "", 6, 12},
#define BOTH(name, type, what) \
    {"ds_" name "_" type "32", run_ds_atomic, 0, "", what, 4}, {"ds_" name "_rtn_" type "32", run_ds_atomic, 0, "", what, -4}, \
    {"ds_" name "_" type "64", run_ds_atomic, 0, "", what, 8}, {"ds_" name "_rtn_" type "64", run_ds_atomic, 0, "", what, -8},
    BOTH("add", "u", ADD) BOTH("sub", "u", SUB) BOTH("rsub", "u", RSUB) BOTH("inc", "u", INC) BOTH("dec", "u", DEC) BOTH("min", "i", SMIN)
    BOTH("max", "i", SMAX) BOTH("min", "u", UMIN) BOTH("max", "u", UMAX) BOTH("and", "b", AND) BOTH("or", "b", OR) BOTH("xor", "b", XOR)
    BOTH("cmpst", "b", CMPSWAP)
#undef BOTH
    {"ds_wrxchg_rtn_b32", run_ds_atomic, 0, "", SWAP, -4}, {"ds_wrxchg_rtn_b64", run_ds_atomic, 0, "", SWAP, -8},
    {"ds_add_f32", run_ds_atomic, 0, "", ADD_F32, 4}, {"ds_add_rtn_f32", run_ds_atomic, 0, "", ADD_F32, -4},
    {"ds_min_f32", run_ds_atomic, 0, "", MIN_F32, 4}, {"ds_min_rtn_f32", run_ds_atomic, 0, "", MIN_F32, -4},
    {"ds_max_f32", run_ds_atomic, 0, "", MAX_F32, 4}, {"ds_max_rtn_f32", run_ds_atomic, 0, "", MAX_F32, -4},
    {"ds_add_f64", run_ds_atomic, 0, "", ADD_F64, 8}, {"ds_add_rtn_f64", run_ds_atomic, 0, "", ADD_F64, -8},
    {"ds_pk_add_f16", run_ds_atomic, 0, "", PK_ADD_F16, 4}, {"ds_pk_add_rtn_f16", run_ds_atomic, 0, "", PK_ADD_F16, -4},
    {"ds_pk_add_bf16", run_ds_atomic, 0, "", PK_ADD_BF16, 4}, {"ds_pk_add_rtn_bf16", run_ds_atomic, 0, "", PK_ADD_BF16, -4},
};
const Op* lds_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
