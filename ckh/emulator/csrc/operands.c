/* Sources and results of vector instructions: registers, constants, modifiers, SDWA and DPP. */
#include "operands.h"

static const float FLOATS_INLINE[] = {0.5f, -0.5f, 1, -1, 2, -2, 4, -4, 0.15915494309189535f};

u32 scalar_operand(State* t, const Inst* i, u32 src) {
    if (src == LITERAL) return i->literal;
    if (src == VCCZ) return !pair(&t->sgpr[VCC]);
    if (src == EXECZ) return !exec_of(t);
    if (src >= FIRST_VGPR || (src > 208 && src < 240) || (src >= 249 && src != SCC)) { not_emulated(t); return 0; }
    if (src < NAMED_SGPRS) uses(t, SGPR_AT + src, 1);
    return t->sgpr[src];
}

/* A 64-bit scalar operand. A literal is the upper half of a floating-point number, else it is extended by zeros, as LLVM's
   s_mov_b64 expects; of signed numbers one is not sure. */
u64 scalar_operand64(State* t, const Inst* i, u32 src, int is_float) {
    if (src == LITERAL) {
        if (!is_float && i->literal >> 31 && strstr(i->op->name, "i64")) not_emulated(t);
        return is_float ? (u64)i->literal << 32 : i->literal;
    }
    if (src == SHARED_BASE) return SHARED_APERTURE;
    if (src == PRIVATE_BASE) return PRIVATE_APERTURE;
    if (src < NAMED_SGPRS) return sgpr_pair(t, src);
    if (src <= 208) return (u64)(i64)(i32)t->sgpr[src];
    if (src >= 240 && src <= 248) return src == 248 ? 0x3fc45f306dc9c882ull : to_bits64(FLOATS_INLINE[src - 240]);
    return scalar_operand(t, i, src);
}

/* Inline constants of 16-bit operands are fp16. */
static u32 scalar_operand16(State* t, const Inst* i, u32 src) {
    if (src >= 240 && src <= 248) return half_bits(FLOATS_INLINE[src - 240]);
    return scalar_operand(t, i, src);
}

/* Which lane DPP takes a lane's value from; -1 for none. */
static int dpp_lane(u32 control, int n) {
    const int row = n & ~15, in = n & 15, by = (int)(control & 15);
    if (control < 0x100) return (n & ~3) | (int)(control >> 2 * (n & 3) & 3);
    switch (control & 0x1f0) {
        case 0x100: return in + by < 16 ? n + by : -1;
        case 0x110: return in - by >= 0 ? n - by : -1;
        case 0x120: return row | ((in - by) & 15);
        case 0x150: return row | by;
        default: break;
    }
    switch (control) {
        case 0x130: return n + 1 < LANES ? n + 1 : -1;
        case 0x134: return (n + 1) % LANES;
        case 0x138: return n - 1;
        case 0x13c: return (n + LANES - 1) % LANES;
        case 0x140: return row | (15 - in);
        case 0x141: return (n & ~7) | (7 - (n & 7));
        case 0x142: return row - 1;
        case 0x143: return n >= 32 ? 31 : -1;
        default: return -2;
    }
}

/* Lanes that DPP lets write; the values go to `to`. */
static u64 dpp(State* t, const Inst* i, const u32* from, u32* to) {
    const u32 x = i->select, rows = x >> 28, banks = x >> 24 & 15, zero = x >> 19 & 1;
    const u64 exec = exec_of(t);
    u64 on = 0;
    for (int n = 0; n < LANES; ++n) {
        const int at = dpp_lane(x >> 8 & 0x1ff, n);
        if (at == -2) { not_emulated(t); return 0; }
        const int valid = at >= 0 && exec >> at & 1;
        to[n] = valid ? from[at] : 0;
        if ((valid || zero) && rows >> (n / 16) & 1 && banks >> (n / 4 & 3) & 1) on |= 1ull << n;
    }
    return on;
}

static u32 selected(u32 x, u32 which, int is_signed) {
    if (which < 4) return is_signed ? (u32)(i32)(int8_t)(x >> 8 * which) : x >> 8 * which & 0xff;
    if (which < 6) return is_signed ? (u32)(i32)(int16_t)(x >> 16 * (which - 4)) : x >> 16 * (which - 4) & 0xffff;
    return x;
}

static u64 splat_neg(char type, const Inst* i, int k, u64 x) {
    const int neg = i->neg >> k & 1, abs = i->abs >> k & 1;
    const u64 top = type == 'f' ? 1ull << 31 : type == 'h' ? 1ull << 15 : 1ull << 63;
    if (abs) x &= ~top;
    return neg ? x ^ top : x;
}

/* Source k as the function wants it. */
void fetch(State* t, const Inst* i, Args* a, int k, char type, Vec* room) {
    const u32 src = i->src[k];
    const int is_vector = src >= FIRST_VGPR, modified = (i->neg | i->abs) >> k & 1;
    const u32* row = is_vector ? &t->vgpr[(src - FIRST_VGPR) * LANES] : NULL;
    a->s[k] = room;
    if (is_vector) uses(t, src - FIRST_VGPR, type == 'q' || type == 'd' || type == 'F' ? 2 : 1);
    if (type == 'm') {
        a->mask[k] = is_vector ? 0 : scalar_operand64(t, i, src, 0);
        if (is_vector) not_emulated(t);
        return;
    }
    if (type == 'q' || type == 'd' || type == 'F') {
        if (i->form) { if (type != 'q' || i->form == SDWA) { not_emulated(t); return; } }
        if (i->form == DPP && k == 0) {
            Vec lo, hi;
            a->exec &= dpp(t, i, row, lo.u) & dpp(t, i, row + LANES, hi.u);
            EACH room->q[n] = lo.u[n] | (u64)hi.u[n] << 32;
            return;
        }
        if (type == 'F') {
            const int low = i->op_sel >> k & 1, high = i->op_sel_hi >> k & 1;
            u64 both = 0;
            if (!is_vector) {
                both = src < NAMED_SGPRS ? sgpr_pair(t, src) : scalar_operand(t, i, src);
                if (src >= NAMED_SGPRS && both && (low || (high && i->op->types[0] == 'F'))) { not_emulated(t); return; } /* which half a constant is for */
            }
            const u32 flip = i->neg >> k & 1 ? 0x80000000u : 0, flip_hi = i->neg_hi >> k & 1 ? 0x80000000u : 0;
            EACH {
                const u64 x = is_vector ? row[n] | (u64)row[LANES + n] << 32 : both;
                room->q[n] = ((u32)(x >> 32 * low) ^ flip) | (u64)((u32)(x >> 32 * high) ^ flip_hi) << 32;
            }
            return;
        }
        const u64 value = is_vector ? 0 : scalar_operand64(t, i, src, type == 'd');
        if (is_vector) EACH room->q[n] = row[n] | (u64)row[LANES + n] << 32;
        else EACH room->q[n] = value;
        if (modified && type == 'd') EACH room->q[n] = splat_neg('d', i, k, room->q[n]);
        return;
    }
    const int is_packed = type == 'p' || type == 'P', is_half = type == 'h' || type == 'k';
    if (!is_vector) {
        const u32 value = is_half || type == 'p' ? scalar_operand16(t, i, src) : scalar_operand(t, i, src);
        EACH room->u[n] = value;
        row = room->u;
    }
    if (i->form == DPP && k == 0) {
        Vec moved;
        a->exec &= dpp(t, i, row, moved.u);
        memcpy(room, &moved, sizeof room->u);
        row = room->u;
    }
    if (i->form == SDWA && k < 2) {
        const u32 x = i->select >> (k ? 24 : 16), which = x & 7;
        const int is_signed = x >> 3 & 1;
        if (which != 6) { EACH room->u[n] = selected(row[n], which, is_signed); row = room->u; }
    }
    if (is_packed) {
        const int low = i->op_sel >> k & 1 ? 16 : 0, high = i->op_sel_hi >> k & 1 ? 16 : 0;
        const u32 flip = (i->neg >> k & 1 ? 0x8000u : 0) | (i->neg_hi >> k & 1 ? 0x80000000u : 0);
        if (low || !high || flip) {
            EACH room->u[n] = ((row[n] >> low & 0xffff) | (row[n] >> high & 0xffff) << 16) ^ (type == 'p' ? flip : 0);
            row = room->u;
        }
    } else if (is_half && i->op_sel >> k & 1) {
        EACH room->u[n] = row[n] >> 16;
        row = room->u;
    }
    if (modified && (type == 'f' || type == 'h')) {
        EACH room->u[n] = (u32)splat_neg(type, i, k, row[n]);
        row = room->u;
    }
    a->s[k] = row;
}

float finished(float x, const Inst* i) {
    if (i->omod) x *= i->omod == 1 ? 2 : i->omod == 2 ? 4 : 0.5f;
    if (i->clamp) x = !(x > 0) ? 0 : x > 1 ? 1 : x;
    return x;
}

void write_lanes(u32* to, const u32* from, u64 exec) {
    if (exec == ~0ull) memcpy(to, from, LANES * 4);
    else for (int n = 0; n < LANES; ++n) to[n] = exec >> n & 1 ? from[n] : to[n];
}

void run_vector(State* t, const Inst* i) {
    const char* types = i->op->types;
    Args a;
    Vec room[3];
    a.t = t, a.i = i, a.bits = 0, a.exec = exec_of(t), a.s[2] = NULL;
    for (int k = 0; types[k + 1]; ++k) {
        char type = types[k + 1];
        if (type == 'o') { /* the result's register is a source, too, without modifiers */
            const u32* row = &t->vgpr[i->dst * LANES];
            a.s[k] = row;
            if (types[0] == 'd') { EACH room[k].q[n] = row[n] | (u64)row[LANES + n] << 32; a.s[k] = &room[k]; }
        } else fetch(t, i, &a, k, type, &room[k]);
    }
    ((void (*)(Args*))i->op->function)(&a);
    const u64 exec = a.exec;
    u32* to = &t->vgpr[i->dst * LANES];
    if (types[0] != 'm') uses(t, i->dst, types[0] == 'q' || types[0] == 'd' || types[0] == 'F' ? 2 : 1);
    switch (types[0]) {
        case 'm': write_sgpr_pair(t, i->sdst, a.bits & exec);
            if (i->op->a) set_pair(&t->sgpr[EXEC], a.bits & exec);
            return;
        case 'f': if (i->omod | i->clamp) EACH a.d.f[n] = finished(a.d.f[n], i); break;
        case 'd': if (i->omod | i->clamp) EACH {
                double x = a.d.d[n];
                if (i->omod) x *= i->omod == 1 ? 2 : i->omod == 2 ? 4 : 0.5;
                a.d.d[n] = i->clamp ? (!(x > 0) ? 0 : x > 1 ? 1 : x) : x;
            }
            break;
        case 'F': if (i->clamp) EACH {
                const float x = finished(from_bits((u32)a.d.q[n]), i), y = finished(from_bits((u32)(a.d.q[n] >> 32)), i);
                a.d.q[n] = to_bits(x) | (u64)to_bits(y) << 32;
            }
            break;
        case 'p': if (i->clamp) EACH a.d.u[n] = half_bits(finished(half(a.d.u[n]), i)) | (u32)half_bits(finished(half(a.d.u[n] >> 16), i)) << 16; break;
        case 'h': case 'H': if (i->omod | i->clamp) EACH a.d.u[n] = half_bits(finished(half(a.d.u[n]), i)); break;
        case 'C': break;
        default: if (i->clamp | i->omod) { not_emulated(t); return; }
    }
    if (i->op->b) write_sgpr_pair(t, i->sdst, a.bits & exec); /* a carry out */
    const char type = types[0];
    if (type == 'q' || type == 'd' || type == 'F') {
        Vec lo, hi;
        EACH lo.u[n] = (u32)a.d.q[n], hi.u[n] = (u32)(a.d.q[n] >> 32);
        write_lanes(to, lo.u, exec);
        write_lanes(to + LANES, hi.u, exec);
        return;
    }
    if (i->form == SDWA && type != 'm') {
        const u32 which = i->select >> 8 & 7, unused = i->select >> 11 & 3;
        if (which != 6) {
            const u32 width = which < 4 ? 8 : 16, shift = which < 4 ? which * 8 : (which - 4) * 16, mask = (width == 8 ? 0xffu : 0xffffu) << shift;
            EACH {
                const u32 x = a.d.u[n] << shift & mask, top = a.d.u[n] >> (width - 1) & 1;
                const u32 rest = unused == 2 ? to[n] & ~mask : unused == 1 && top && shift + width < 32 ? ~0u << (shift + width) : 0;
                a.d.u[n] = x | rest;
            }
        }
    } else if (i->op_sel & 8 && (type == 'h' || type == 'k' || type == 'H' || type == 'K')) {
        EACH a.d.u[n] = (to[n] & 0xffff) | a.d.u[n] << 16;
    } else if (type == 'H' || type == 'K') EACH a.d.u[n] = (to[n] & 0xffff0000u) | LO(a.d.u[n]);
    write_lanes(to, a.d.u, exec);
}
