/* Sources and results of instructions: scalar ones, and what functions of vector instructions work on. */
#pragma once
#include "numbers.h"

Run run_vector;
u32 scalar_operand(State* t, const Inst* i, u32 src);
u64 scalar_operand64(State* t, const Inst* i, u32 src, int is_float);
void write_lanes(u32* to, const u32* from, u64 exec);

static inline u32 operand_u32(State* t, const Inst* i, int k) { return scalar_operand(t, i, i->src[k]); }
static inline i32 operand_i32(State* t, const Inst* i, int k) { return (i32)scalar_operand(t, i, i->src[k]); }
static inline u64 operand_u64(State* t, const Inst* i, int k) { return scalar_operand64(t, i, i->src[k], 0); }
static inline void result_u32(State* t, const Inst* i, u32 x) { write_sgpr(t, i->dst, x); }
static inline void result_u64(State* t, const Inst* i, u64 x) { write_sgpr_pair(t, i->dst, x); }

/* The bits from `at` on. */
static inline u64 bits_of(u64 x, u32 at, u32 width, int is_signed) {
    if (!width) return 0;
    if (is_signed) {
        x = (u64)((i64)x >> at);
        return width >= 64 ? x : (u64)((i64)(x << (64 - width)) >> (64 - width));
    }
    return x >> at & (width >= 64 ? ~0ull : (1ull << width) - 1);
}

/* ---- vectors ---- */

typedef union {
    u32 u[LANES]; i32 i[LANES]; float f[LANES]; u64 q[LANES]; i64 l[LANES]; double d[LANES];
} __attribute__((aligned(64))) Vec;

typedef struct {
    const void* s[3];      /* the sources, by lane */
    u64 mask[3];           /* those that are a bit a lane */
    u64 bits, exec;        /* the result's bits; lanes that are on */
    Vec d;
    State* t;
    const Inst* i;
} Args;

/* operands.c: source k as the type wants it; clamp and the factor of a result. */
void fetch(State* t, const Inst* i, Args* a, int k, char type, Vec* room);
float finished(float x, const Inst* i);

/* The sources at lane n: unsigned, signed, fp32, fp16, 16-bit, 64-bit, fp64, a bit of a mask. */
#define EACH for (int n = 0; n < LANES; ++n)
#define U0 ((const u32*)a->s[0])[n]
#define U1 ((const u32*)a->s[1])[n]
#define U2 ((const u32*)a->s[2])[n]
#define I0 ((const i32*)a->s[0])[n]
#define I1 ((const i32*)a->s[1])[n]
#define I2 ((const i32*)a->s[2])[n]
#define F0 ((const float*)a->s[0])[n]
#define F1 ((const float*)a->s[1])[n]
#define F2 ((const float*)a->s[2])[n]
#define H0 half(U0)
#define H1 half(U1)
#define H2 half(U2)
#define K0 ((uint16_t)U0)
#define K1 ((uint16_t)U1)
#define K2 ((uint16_t)U2)
#define J0 ((int16_t)U0)
#define J1 ((int16_t)U1)
#define J2 ((int16_t)U2)
#define Q0 ((const u64*)a->s[0])[n]
#define Q1 ((const u64*)a->s[1])[n]
#define Q2 ((const u64*)a->s[2])[n]
#define L0 ((const i64*)a->s[0])[n]
#define L1 ((const i64*)a->s[1])[n]
#define D0 ((const double*)a->s[0])[n]
#define D1 ((const double*)a->s[1])[n]
#define D2 ((const double*)a->s[2])[n]
#define M2 (a->mask[2] >> n & 1)
#define LO(x) ((x) & 0xffff)
#define HI(x) ((x) >> 16)

#define FUNCTION(name) (void (*)(void))x_##name
#define VECTOR_OP(name, types) {#name, run_vector, FUNCTION(name), types, 0, 0}
