/* Moves between lanes, between vector and scalar registers, and to and from the accumulation registers. */
#include "operands.h"

static void uses_source(const State* t, u32 src) {
    if (src >= FIRST_VGPR) uses(t, src - FIRST_VGPR, 1);
}

static void run_readfirstlane(State* t, const Inst* i) {
    const u64 exec = exec_of(t);
    const u32 src = i->src[0];
    uses_source(t, src);
    write_sgpr(t, i->dst, src < 256 ? scalar_operand(t, i, src) : t->vgpr[(src - 256) * LANES + (exec ? (u32)__builtin_ctzll(exec) : 0)]);
}
static void run_readlane(State* t, const Inst* i) {
    const u32 lane = scalar_operand(t, i, i->src[1]) & 63, src = i->src[0];
    uses_source(t, src);
    write_sgpr(t, i->dst, src < 256 ? scalar_operand(t, i, src) : t->vgpr[(src - 256) * LANES + lane]);
}
static void run_writelane(State* t, const Inst* i) {
    uses(t, i->dst, 1);
    t->vgpr[i->dst * LANES + (scalar_operand(t, i, i->src[1]) & 63)] = scalar_operand(t, i, i->src[0]);
}
static void run_acc_read(State* t, const Inst* i) {
    uses(t, i->dst, 1), uses(t, i->src[0], 1);
    if (i->src[0] < 256) not_emulated(t);
    else write_lanes(&t->vgpr[i->dst * LANES], &t->acc[(i->src[0] - 256) * LANES], exec_of(t));
}
static void run_acc_mov(State* t, const Inst* i) {
    uses(t, ACC_AT + i->dst, 1), uses(t, i->src[0], 1);
    if (i->src[0] < 256) not_emulated(t);
    else write_lanes(&t->acc[i->dst * LANES], &t->acc[(i->src[0] - 256) * LANES], exec_of(t));
}
static void run_acc_write(State* t, const Inst* i) {
    Vec v;
    const u32 src = i->src[0];
    uses(t, ACC_AT + i->dst, 1), uses_source(t, src);
    if (src < 256) { const u32 x = scalar_operand(t, i, src); EACH v.u[n] = x; }
    else memcpy(v.u, &t->vgpr[(src - 256) * LANES], sizeof v.u);
    write_lanes(&t->acc[i->dst * LANES], v.u, exec_of(t));
}
static void run_swap(State* t, const Inst* i) {
    if (i->src[0] < 256) { not_emulated(t); return; }
    uses(t, i->dst, 1), uses_source(t, i->src[0]);
    u32 *x = &t->vgpr[i->dst * LANES], *y = &t->vgpr[(i->src[0] - 256) * LANES];
    const u64 exec = exec_of(t);
    EACH if (exec >> n & 1) { const u32 was = x[n]; x[n] = y[n], y[n] = was; }
}

/* gfx950: odd rows of `rows` lanes of the first are exchanged with even ones of the second. */
static void run_swap_rows(State* t, const Inst* i) {
    if (i->src[0] < FIRST_VGPR) { not_emulated(t); return; }
    uses(t, i->dst, 1), uses_source(t, i->src[0]);
    const u32 rows = (u32)i->op->a;
    u32 *x = &t->vgpr[i->dst * LANES], *y = &t->vgpr[(i->src[0] - FIRST_VGPR) * LANES];
    const u64 exec = exec_of(t);
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (lane / rows % 2) continue;
        const u32 was = x[lane + rows], given = y[lane];
        if (is_on(exec, lane + rows)) x[lane + rows] = given;
        if (is_on(exec, lane)) y[lane] = was;
    }
}

static const Op OPS[] = {
    {"v_swap_b32", run_swap, 0, "", 0, 0}, {"v_readfirstlane_b32", run_readfirstlane, 0, "", 0, 0},
    {"v_readlane_b32", run_readlane, 0, "", 0, 0}, {"v_writelane_b32", run_writelane, 0, "", 0, 0},
    {"v_accvgpr_read_b32", run_acc_read, 0, "", 0, 0}, {"v_accvgpr_write_b32", run_acc_write, 0, "", 0, 0},
    {"v_accvgpr_mov_b32", run_acc_mov, 0, "", 0, 0}, {"v_permlane16_swap_b32", run_swap_rows, 0, "", 16, 0},
    {"v_permlane32_swap_b32", run_swap_rows, 0, "", 32, 0},
};
const Op* lane_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
