/* Atomic operations on memory and LDS. */
#pragma once
#include "numbers.h"

enum Atomic {
    SWAP, CMPSWAP, ADD, SUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, INC, DEC, ADD_F32, PK_ADD_F16, PK_ADD_BF16, ADD_F64,
    MIN_F64, MAX_F64, RSUB, MIN_F32, MAX_F32
};

/* What memory holds after an operation on 4 or 8 bytes; `wanted` is what a CMPSWAP compares with. */
u64 atomic(enum Atomic what, u64 old, u64 given, u64 wanted, int bytes);

/* What follows "buffer_", "global_" or "flat_" in an instruction's name, operation, bytes. */
#define ATOMICS(X) \
    X("atomic_swap", SWAP, 4) X("atomic_swap_x2", SWAP, 8) X("atomic_cmpswap", CMPSWAP, 4) X("atomic_cmpswap_x2", CMPSWAP, 8) \
    X("atomic_add", ADD, 4) X("atomic_add_x2", ADD, 8) X("atomic_sub", SUB, 4) X("atomic_sub_x2", SUB, 8) \
    X("atomic_smin", SMIN, 4) X("atomic_smin_x2", SMIN, 8) X("atomic_umin", UMIN, 4) X("atomic_umin_x2", UMIN, 8) \
    X("atomic_smax", SMAX, 4) X("atomic_smax_x2", SMAX, 8) X("atomic_umax", UMAX, 4) X("atomic_umax_x2", UMAX, 8) \
    X("atomic_and", AND, 4) X("atomic_and_x2", AND, 8) X("atomic_or", OR, 4) X("atomic_or_x2", OR, 8) \
    X("atomic_xor", XOR, 4) X("atomic_xor_x2", XOR, 8) X("atomic_inc", INC, 4) X("atomic_inc_x2", INC, 8) \
    X("atomic_dec", DEC, 4) X("atomic_dec_x2", DEC, 8) X("atomic_add_f32", ADD_F32, 4) X("atomic_pk_add_f16", PK_ADD_F16, 4) \
    X("atomic_pk_add_bf16", PK_ADD_BF16, 4) X("atomic_add_f64", ADD_F64, 8) X("atomic_min_f64", MIN_F64, 8) \
    X("atomic_max_f64", MAX_F64, 8)
