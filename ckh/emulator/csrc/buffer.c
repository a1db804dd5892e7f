/* Buffer instructions: memory through a descriptor with bounds, and loads of it to LDS. */
#include "atomics.h"

/* Each dword is checked by itself, except that atomics are checked as a whole; the SGPR's offset counts. */
typedef struct {
    const State* t;
    const u32* v;
    u64 base, stride, records, from_sgpr;
    u32 offset, offen, idxen, vaddr, vdata;
    u32* file;
    int is_scratch;
} Buffer;

/* A descriptor that says "swizzled" is that of gfx90a's scratch memory, which lanes share dword by dword. */
static int buffer_of(State* t, const Inst* i, Buffer* b) {
    const u32 w0 = i->w[0], w1 = i->w[1], *rsrc = &t->sgpr[(w1 >> 16 & 0x1f) * 4];
    uses(t, SGPR_AT + (w1 >> 16 & 0x1f) * 4, 4);
    if (w1 >> 24 < NAMED_SGPRS) uses(t, SGPR_AT + (w1 >> 24), 1);
    uses(t, w1 & 0xff, (w0 >> 12 & 1) + (w0 >> 13 & 1));
    *b = (Buffer){
        .t = t, .v = t->vgpr, .base = pair(rsrc) & 0xffffffffffffull, .stride = rsrc[1] >> 16 & 0x3fff, .records = rsrc[2],
        .from_sgpr = t->sgpr[w1 >> 24], .offset = w0 & 0xfff, .offen = w0 >> 12 & 1, .idxen = w0 >> 13 & 1,
        .vaddr = w1 & 0xff, .vdata = w1 >> 8 & 0xff, .file = w1 >> 23 & 1 ? t->acc : t->vgpr, .is_scratch = rsrc[1] >> 31,
    };
    if (!b->is_scratch) return 1;
    if (!emu_is_gfx90a || b->idxen) { not_emulated(t); return 0; }
    b->base = (u64)(uintptr_t)t->scratch, b->stride = 0, b->records = t->scratch_bytes, b->from_sgpr /= LANES;
    return 1;
}

typedef struct { u64 at, offset, index; u32 lane; } Place; /* read before the lane's first register is written */
static inline Place place_of(const Buffer* b, int lane) {
    const u64 index = b->idxen ? b->v[b->vaddr * LANES + (u32)lane] : 0;
    const u32 within = (b->offen ? b->v[(b->vaddr + b->idxen) * LANES + (u32)lane] : 0) + b->offset;
    const u64 own = b->is_scratch ? (u64)lane * b->t->scratch_bytes : b->stride * index;
    return (Place){b->base + b->from_sgpr + own + within, within, index, (u32)lane};
}
static inline char* buffer_at(const Buffer* b, const Place* p, u32 part, int bytes) {
    const u64 end = p->offset + part * 4 + (u64)bytes;
    const int fits = b->stride ? p->index < b->records && end <= b->stride : end + b->from_sgpr <= b->records;
    if (!fits && b->is_scratch) fault(SCRATCH_RANGE, b->t, p->lane, (u32)(end - (u64)bytes + b->from_sgpr), 0, 0);
    if (!fits || (!b->is_scratch && !may_touch_memory(b->t, p->lane, p->at + part * 4, (u32)bytes))) return NULL;
    return (char*)(uintptr_t)(p->at + part * 4);
}

/* To LDS: M0 and the instruction's offset say where, and lanes follow one another; a byte or a word takes a dword there. */
static void buffer_to_lds(State* t, const Inst* i, u32 parts, int bytes) {
    Buffer b;
    if (!buffer_of(t, i, &b)) return;
    const u64 exec = exec_of(t);
    for (u32 lane = 0; lane < LANES; ++lane) {
        if (!is_on(exec, lane)) continue;
        const u32 to = (t->sgpr[M0] & 0xffff) + b.offset + lane * parts * 4;
        const Place p = place_of(&b, (int)lane);
        if (!may_touch(t, lane, to, parts * 4, WRITE)) return;
        for (u32 part = 0; part < parts; ++part) {
            const char* at = buffer_at(&b, &p, part, bytes);
            u32 value = 0;
            if (at) memcpy(&value, at, (size_t)bytes);
            memcpy(t->lds + to + part * 4, &value, 4);
        }
    }
    arrives_late_in_lds(t);
}

typedef void Part(char* at, u32* r);
static inline void buffer(State* t, const Inst* i, int parts, int bytes, Part* access, int is_load, u32 keep) {
    Buffer b;
    if (i->w[0] >> 16 & 1) { buffer_to_lds(t, i, (u32)parts, bytes); return; }
    if (!buffer_of(t, i, &b)) return;
    const u64 exec = exec_of(t);
    for (int lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        const Place p = place_of(&b, lane);
        for (u32 part = 0; part < (u32)parts; ++part)
            access(buffer_at(&b, &p, part, bytes), &b.file[(b.vdata + part) * LANES + (u32)lane]);
    }
    if (is_load) { arrives_late(t, VM, b.file, b.vdata, (u32)parts, keep); return; }
    uses_vector(t, b.file, b.vdata, (u32)parts);
    under_way(t, VM);
}

/* name, dwords, type in memory, what is loaded or stored of it, and bits of the register that stay */
#define LOADS(X) \
    X(load_ubyte, 1, uint8_t, value, 0) X(load_sbyte, 1, int8_t, (u32)(i32)value, 0) X(load_ushort, 1, uint16_t, value, 0) \
    X(load_sshort, 1, int16_t, (u32)(i32)value, 0) X(load_dword, 1, u32, value, 0) X(load_dwordx2, 2, u32, value, 0) \
    X(load_dwordx3, 3, u32, value, 0) X(load_dwordx4, 4, u32, value, 0) \
    X(load_ubyte_d16, 1, uint8_t, (*r & 0xffff0000u) | value, 0xffff0000u) \
    X(load_ubyte_d16_hi, 1, uint8_t, (*r & 0xffffu) | (u32)value << 16, 0xffffu) \
    X(load_sbyte_d16, 1, int8_t, (*r & 0xffff0000u) | (uint16_t)(int16_t)value, 0xffff0000u) \
    X(load_sbyte_d16_hi, 1, int8_t, (*r & 0xffffu) | (u32)(uint16_t)(int16_t)value << 16, 0xffffu) \
    X(load_short_d16, 1, uint16_t, (*r & 0xffff0000u) | value, 0xffff0000u) \
    X(load_short_d16_hi, 1, uint16_t, (*r & 0xffffu) | (u32)value << 16, 0xffffu)
#define STORES(X) \
    X(store_byte, 1, uint8_t, *r) X(store_byte_d16_hi, 1, uint8_t, *r >> 16) X(store_short, 1, uint16_t, *r) \
    X(store_short_d16_hi, 1, uint16_t, *r >> 16) X(store_dword, 1, u32, *r) X(store_dwordx2, 2, u32, *r) \
    X(store_dwordx3, 3, u32, *r) X(store_dwordx4, 4, u32, *r)
#define X(name, parts, type, expression, keep) \
    static void access_##name(char* at, u32* r) { type value = 0; if (at) memcpy(&value, at, sizeof value); *r = (expression); } \
    static void run_buffer_##name(State* t, const Inst* i) { buffer(t, i, parts, sizeof(type), access_##name, 1, keep); }
LOADS(X)
#undef X
#define X(name, parts, type, expression) \
    static void access_##name(char* at, u32* r) { const type value = (type)(expression); if (at) memcpy(at, &value, sizeof value); } \
    static void run_buffer_##name(State* t, const Inst* i) { buffer(t, i, parts, sizeof(type), access_##name, 0, 0); }
STORES(X)
#undef X

static void run_buffer_atomic(State* t, const Inst* i) {
    Buffer b;
    if (!buffer_of(t, i, &b)) return;
    const u64 exec = exec_of(t);
    const int bytes = i->op->b;
    const u32 words = (u32)bytes / 4, returns = i->w[0] >> 14 & 1;
    for (int lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        const Place p = place_of(&b, lane);
        char* at = buffer_at(&b, &p, 0, bytes);
        u32* d = &b.file[b.vdata * LANES + (u32)lane];
        const u64 given = d[0] | (words == 2 ? (u64)d[LANES] << 32 : 0);
        u64 old = 0, wanted = 0;
        if (i->op->a == CMPSWAP) wanted = d[words * LANES] | (words == 2 ? (u64)d[3 * LANES] << 32 : 0);
        if (at) {
            memcpy(&old, at, (size_t)bytes);
            const u64 now = atomic((enum Atomic)i->op->a, old, given, wanted, bytes);
            memcpy(at, &now, (size_t)bytes);
        }
        if (returns)
            for (u32 n = 0; n < words; ++n) d[n * LANES] = (u32)(old >> (32 * n));
    }
    uses_vector(t, b.file, b.vdata, words);
    if (returns) arrives_late(t, VM, b.file, b.vdata, words, 0);
    else under_way(t, VM);
}

static const Op OPS[] = {
#define X(name, ...) {"buffer_" #name, run_buffer_##name, 0, "", 0, 0},
    LOADS(X) STORES(X)
#undef X
#define X(name, what, bytes) {"buffer_" name, run_buffer_atomic, 0, "", what, bytes},
    ATOMICS(X)
#undef X
};
const Op* buffer_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
