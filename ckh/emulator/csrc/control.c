/* Branches, the register MODE, scalar memory, and what has no effect here. */
#include <xmmintrin.h>

#include "operands.h"

static void run_s_getpc_b64(State* t, const Inst* i) { result_u64(t, i, t->next); }
static void run_s_setpc_b64(State* t, const Inst* i) { t->next = operand_u64(t, i, 0); }
static void run_s_swappc_b64(State* t, const Inst* i) { const u64 to = operand_u64(t, i, 0); result_u64(t, i, t->next); t->next = to; }

static void jump(State* t, const Inst* i) { t->next += (u64)((i64)(int16_t)i->w[0] * 4); }
static void run_s_branch(State* t, const Inst* i) { jump(t, i); }
static void run_s_call_b64(State* t, const Inst* i) { result_u64(t, i, t->next); jump(t, i); }
static void run_s_cbranch_scc0(State* t, const Inst* i) { if (!t->sgpr[SCC]) jump(t, i); }
static void run_s_cbranch_scc1(State* t, const Inst* i) { if (t->sgpr[SCC]) jump(t, i); }
static void run_s_cbranch_vccz(State* t, const Inst* i) { if (!pair(&t->sgpr[VCC])) jump(t, i); }
static void run_s_cbranch_vccnz(State* t, const Inst* i) { if (pair(&t->sgpr[VCC])) jump(t, i); }
static void run_s_cbranch_execz(State* t, const Inst* i) { if (!exec_of(t)) jump(t, i); }
static void run_s_cbranch_execnz(State* t, const Inst* i) { if (exec_of(t)) jump(t, i); }
static void run_s_endpgm(State* t, const Inst* i) { (void)i; wait_for(t, VM, 0), wait_for(t, LGKM, 0), t->done = 1; }

/* Only MODE's rounding and denormals are there. */
enum { HW_MODE = 1 };
void apply_mode(const State* t) {
    static const unsigned rounding[] = {0x0000, 0x4000, 0x2000, 0x6000};
    const unsigned denormals = t->mode >> 4 & 3;
    _mm_setcsr((_mm_getcsr() & ~0xe040u) | rounding[t->mode & 3] | (denormals & 2 ? 0 : 0x8000) | (denormals & 1 ? 0 : 0x40));
}
static void run_s_getreg_b32(State* t, const Inst* i) {
    const u32 x = i->w[0] & 0xffff, at = x >> 6 & 31, width = (x >> 11 & 31) + 1;
    if ((x & 63) != HW_MODE) { not_emulated(t); return; }
    result_u32(t, i, (u32)bits_of(t->mode, at, width, 0));
}
static void set_mode(State* t, const Inst* i, u32 value) {
    const u32 x = i->w[0] & 0xffff, at = x >> 6 & 31, width = (x >> 11 & 31) + 1;
    const u32 mask = (u32)(((1ull << width) - 1) << at), mode = (t->mode & ~mask) | (value << at & mask);
    /* fp64 and fp16 must round and keep denormals as they do at the start */
    if ((x & 63) != HW_MODE || ((mode ^ t->mode) & ~0x3ffu & ~0x33u) || ((mode ^ t->mode) & 0xcc)) { not_emulated(t); return; }
    t->mode = mode;
    apply_mode(t);
}
static void run_s_setreg_b32(State* t, const Inst* i) { set_mode(t, i, t->sgpr[i->dst]); }
static void run_s_setreg_imm32_b32(State* t, const Inst* i) { set_mode(t, i, i->w[1]); }

/* Scalar memory. */
static void load_scalar(State* t, const Inst* i) {
    const u32 w0 = i->w[0], w1 = i->w[1], from = (w0 & 0x3f) * 2, to = w0 >> 6 & 0x7f, count = (u32)i->op->a;
    const int is_buffer = i->op->b;
    if (!are_sgprs(t, from, is_buffer ? 4 : 2) || !are_sgprs(t, to, count)) return;
    i64 offset = 0;
    if (w0 >> 17 & 1) offset = (i64)((u64)(w1 & 0x1fffff) << 43) >> 43;
    else if (!(w0 >> 14 & 1)) offset = (i64)t->sgpr[w1 & 0x7f];
    if (w0 >> 14 & 1) offset += (i64)t->sgpr[w1 >> 25];
    const u64 base = pair(&t->sgpr[from]) & (is_buffer ? 0xffffffffffffull : ~0ull);
    u64 size = ~0ull;
    if (is_buffer) {
        const u64 stride = t->sgpr[from + 1] >> 16 & 0x3fff;
        size = (u64)t->sgpr[from + 2] * (stride ? stride : 1);
    }
    offset &= ~3ll;
    u32 data[16];
    for (u32 n = 0; n < count; ++n) {
        const u64 at = base + (u64)offset + n * 4;
        data[n] = 0;
        if (is_buffer && (u64)offset + n * 4 + 4 > size) continue;
        if (!may_touch_memory(t, 0, at, 4)) return;
        memcpy(&data[n], (const char*)at, 4);
    }
    memcpy(&t->sgpr[to], data, count * 4);
    if (!(w0 >> 17 & 1) && !(w0 >> 14 & 1)) uses(t, SGPR_AT + (w1 & 0x7f), 1);
    if (w0 >> 14 & 1) uses(t, SGPR_AT + (w1 >> 25), 1);
    arrives_late_scalar(t, to, count);
}
static void load_time(State* t, const Inst* i) {
    static u64 time;
    const u32 to = i->w[0] >> 6 & 0x7f;
    if (!are_sgprs(t, to, 2)) return;
    set_pair(&t->sgpr[to], time += 64);
    arrives_late_scalar(t, to, 2);
}

static void run_s_waitcnt(State* t, const Inst* i) {
    const u32 x = i->w[0] & 0xffff;
    wait_for(t, VM, (x & 15) | (x >> 14) << 4);
    wait_for(t, LGKM, x >> 8 & 15);
}

static void run_nothing(State* t, const Inst* i) { (void)t, (void)i; }

static const Op OPS[] = {
#define S(name) {#name, run_##name, 0, "", 0, 0},
    S(s_getpc_b64) S(s_setpc_b64) S(s_swappc_b64) S(s_branch) S(s_call_b64) S(s_cbranch_scc0) S(s_cbranch_scc1)
    S(s_cbranch_vccz) S(s_cbranch_vccnz) S(s_cbranch_execz) S(s_cbranch_execnz) S(s_endpgm) S(s_getreg_b32)
    S(s_setreg_b32) S(s_setreg_imm32_b32) S(s_waitcnt)
#undef S
#define N(name) {#name, run_nothing, 0, "", 0, 0},
    N(s_nop) N(s_barrier) N(s_setprio) N(s_sleep) N(s_icache_inv) N(s_wakeup) N(s_incperflevel)
    N(s_decperflevel) N(s_dcache_inv) N(s_dcache_wb) N(s_dcache_inv_vol) N(s_dcache_wb_vol) N(buffer_wbl2) N(buffer_inv)
    N(buffer_wbinvl1) N(buffer_wbinvl1_vol) N(ds_nop) N(v_nop) N(v_clrexcp)
#undef N
#define LOAD(name, dwords, is_buffer) {name, load_scalar, 0, "", dwords, is_buffer},
    LOAD("s_load_dword", 1, 0) LOAD("s_load_dwordx2", 2, 0) LOAD("s_load_dwordx4", 4, 0) LOAD("s_load_dwordx8", 8, 0)
    LOAD("s_load_dwordx16", 16, 0) LOAD("s_buffer_load_dword", 1, 1) LOAD("s_buffer_load_dwordx2", 2, 1)
    LOAD("s_buffer_load_dwordx4", 4, 1) LOAD("s_buffer_load_dwordx8", 8, 1) LOAD("s_buffer_load_dwordx16", 16, 1)
#undef LOAD
    {"s_memtime", load_time, 0, "", 0, 0}, {"s_memrealtime", load_time, 0, "", 0, 0},
};
const Op* control_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
