/* Operands and results of scalar instructions. */
#pragma once
#include "numbers.h"

static inline u32 operand_u32(State* t, const Inst* i, int k) { return scalar_operand(t, i, i->src[k]); }
static inline i32 operand_i32(State* t, const Inst* i, int k) { return (i32)scalar_operand(t, i, i->src[k]); }
static inline u64 operand_u64(State* t, const Inst* i, int k) { return scalar_operand64(t, i, i->src[k], 0); }
static inline void result_u32(State* t, const Inst* i, u32 x) { t->sgpr[i->dst] = x; }
static inline void result_u64(State* t, const Inst* i, u64 x) { set_pair(&t->sgpr[i->dst], x); }

/* The bits from `at` on. */
static inline u64 bits_of(u64 x, u32 at, u32 width, int is_signed) {
    if (!width) return 0;
    if (is_signed) {
        x = (u64)((i64)x >> at);
        return width >= 64 ? x : (u64)((i64)(x << (64 - width)) >> (64 - width));
    }
    return x >> at & (width >= 64 ? ~0ull : (1ull << width) - 1);
}

OpTable control_op;
