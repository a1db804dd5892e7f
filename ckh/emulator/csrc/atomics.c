#include "atomics.h"

static u32 add_pk(u32 old, u32 given, int is_bf16) {
    u32 out = 0;
    for (int n = 0; n < 32; n += 16) {
        const uint16_t x = (uint16_t)(old >> n), y = (uint16_t)(given >> n);
        const uint16_t z = is_bf16 ? bfloat_bits(bfloat(x) + bfloat(y)) : half_bits(half(x) + half(y));
        out |= (u32)z << n;
    }
    return out;
}

u64 atomic(enum Atomic what, u64 old, u64 given, u64 wanted, int bytes) {
    const u64 mask = bytes == 8 ? ~0ull : 0xffffffffu;
    const i64 x = bytes == 8 ? (i64)old : (i32)old, y = bytes == 8 ? (i64)given : (i32)given;
    double a, b;
    old &= mask, given &= mask;
    switch (what) {
        case SWAP: return given;
        case CMPSWAP: return old == (wanted & mask) ? given : old;
        case ADD: return (old + given) & mask;
        case SUB: return (old - given) & mask;
        case RSUB: return (given - old) & mask;
        case SMIN: return x < y ? old : given;
        case UMIN: return old < given ? old : given;
        case SMAX: return x > y ? old : given;
        case UMAX: return old > given ? old : given;
        case AND: return old & given;
        case OR: return old | given;
        case XOR: return old ^ given;
        case INC: return old >= given ? 0 : old + 1;
        case DEC: return old == 0 || old > given ? given : old - 1;
        case ADD_F32: return to_bits(from_bits((u32)old) + from_bits((u32)given));
        case MIN_F32: return to_bits(fminf(from_bits((u32)old), from_bits((u32)given)));
        case MAX_F32: return to_bits(fmaxf(from_bits((u32)old), from_bits((u32)given)));
        case PK_ADD_F16: return add_pk((u32)old, (u32)given, 0);
        case PK_ADD_BF16: return add_pk((u32)old, (u32)given, 1);
        default:
            memcpy(&a, &old, 8), memcpy(&b, &given, 8);
            a = what == ADD_F64 ? a + b : what == MIN_F64 ? fmin(a, b) : fmax(a, b);
            memcpy(&old, &a, 8);
            return old;
    }
}
