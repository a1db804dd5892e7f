/* Decoding: from words to fields, names and what carries an instruction out. */
#include <stdio.h>

#include "emulator.h"
#include "names.h"

static const Op* op_named(const char* name) {
    static OpTable* const tables[] = {vector_op, scalar_op, lane_op, matrix_op, lds_op, buffer_op};
    const Op* op = NULL;
    for (size_t n = 0; !op && n < sizeof tables / sizeof *tables; ++n) op = tables[n](name);
    return op;
}

typedef enum { SOP2, SOPK, SOP1, SOPC, SOPP, SMEM, VOP2, VOP1, VOPC, VOP3, VOP3P, DS, FLATS, MUBUF, NOTHING } Encoding;
static const char* const ENCODINGS[] = {"SOP2", "SOPK", "SOP1", "SOPC", "SOPP", "SMEM", "VOP2", "VOP1", "VOPC", "VOP3", "VOP3P", "DS",
                                        "FLAT", "MUBUF", "unknown"};
static const char* const SEGMENTS[] = {"flat_", "scratch_", "global_", "?"};

static Encoding encoding_of(u32 w, u32* opcode, const char** name) {
    *name = NULL;
#define IS(what, table, op) do { *opcode = (op); *name = table[*opcode]; return what; } while (0)
    if (w >> 31 == 0) {
        if (w >> 25 == 0x3f) IS(VOP1, names_vop1, w >> 9 & 0xff);
        if (w >> 25 == 0x3e) IS(VOPC, names_vopc, w >> 17 & 0xff);
        IS(VOP2, names_vop2, w >> 25);
    }
    if (w >> 30 == 2) {
        if (w >> 23 == 0x17d) IS(SOP1, names_sop1, w >> 8 & 0xff);
        if (w >> 23 == 0x17e) IS(SOPC, names_sopc, w >> 16 & 0x7f);
        if (w >> 23 == 0x17f) IS(SOPP, names_sopp, w >> 16 & 0x7f);
        if (w >> 28 == 0xb) IS(SOPK, names_sopk, w >> 23 & 0x1f);
        IS(SOP2, names_sop2, w >> 23 & 0x7f);
    }
    switch (w >> 26) {
        case 0x30: IS(SMEM, names_smem, w >> 18 & 0xff);
        case 0x34:
            if (w >> 23 == 0x1a7) IS(VOP3P, names_vop3p, w >> 16 & 0x7f);
            *opcode = w >> 16 & 0x3ff;
            *name = *opcode < 256 ? names_vopc[*opcode] : *opcode < 320 ? names_vop2[*opcode - 256]
                    : *opcode < 448 ? names_vop1[*opcode - 320] : names_vop3[*opcode];
            return VOP3;
        case 0x36: IS(DS, names_ds, w >> 17 & 0xff);
        case 0x37: IS(FLATS, names_flat, w >> 18 & 0x7f);
        case 0x38: IS(MUBUF, names_mubuf, w >> 18 & 0x7f);
        default: *opcode = 0; return NOTHING;
    }
#undef IS
}

/* Whether it is one that is emulated; i->size and i->w hold in any case. */
int decode(Inst* i, const u32* words) {
    u32 w = words[0], opcode;
    const char* name;
    const Encoding e = encoding_of(w, &opcode, &name);
    *i = (Inst){.opcode = (uint16_t)opcode, .size = 1, .w = {w}};
    switch (e) {
        case SOP2: case SOPC:
            i->src[0] = w & 0xff, i->src[1] = w >> 8 & 0xff, i->dst = w >> 16 & 0x7f;
            if (i->src[0] == LITERAL || i->src[1] == LITERAL) i->size = 2;
            break;
        case SOP1:
            i->src[0] = w & 0xff, i->dst = w >> 16 & 0x7f;
            if (i->src[0] == LITERAL) i->size = 2;
            break;
        case SOPK: i->dst = w >> 16 & 0x7f; if (opcode == 20) i->size = 2; break;
        case SOPP: i->is_barrier = opcode == 10; break;
        case VOP1: case VOP2: case VOPC:
            i->src[0] = w & 0x1ff, i->src[1] = 256 + (w >> 9 & 0xff), i->src[2] = VCC, i->dst = w >> 17 & 0xff, i->sdst = VCC;
            if (e == VOPC) i->dst = 0;
            if (i->src[0] == LITERAL || i->src[0] == 249 || i->src[0] == 250) i->size = 2;
            break;
        case SMEM: case VOP3: case VOP3P: case DS: case FLATS: case MUBUF: i->size = 2; break;
        default: return 0;
    }
    if (i->size == 2) i->w[1] = words[1], i->literal = words[1];
    const u32 x = i->w[1];
    if ((e == VOP1 || e == VOP2 || e == VOPC) && i->size == 2 && i->src[0] != LITERAL) {
        i->form = i->src[0] == 249 ? SDWA : DPP;
        i->select = x;
        i->src[0] = (x & 0xff) + 256;
        i->neg = (uint8_t)((x >> 20 & 1) | (i->form == SDWA ? x >> 28 & 1 : x >> 22 & 1) << 1);
        i->abs = (uint8_t)((x >> 21 & 1) | (i->form == SDWA ? x >> 29 & 1 : x >> 23 & 1) << 1);
        if (i->form == SDWA) {
            if (x >> 23 & 1) i->src[0] -= 256;
            if (x >> 31) i->src[1] -= 256;
            if (e == VOPC) { if (x >> 15 & 1) i->sdst = x >> 8 & 0x7f; i->select = (x & ~0x700u) | 6 << 8; }
            else i->clamp = x >> 13 & 1, i->omod = x >> 14 & 3;
        }
    }
    if (e == VOP3 || e == VOP3P) {
        i->src[0] = x & 0x1ff, i->src[1] = x >> 9 & 0x1ff, i->src[2] = x >> 18 & 0x1ff;
        i->dst = w & 0xff, i->neg = x >> 29, i->clamp = w >> 15 & 1;
        if (e == VOP3P) {
            i->op_sel = w >> 11 & 7, i->op_sel_hi = (uint8_t)((x >> 27 & 3) | (w >> 14 & 1) << 2), i->neg_hi = w >> 8 & 7;
        } else {
            const int has_sdst = (opcode >= 281 && opcode <= 286) || opcode == 480 || opcode == 481 || opcode == 488 || opcode == 489;
            i->omod = x >> 27 & 3, i->sdst = VCC;
            if (has_sdst) i->sdst = w >> 8 & 0x7f;
            else i->abs = w >> 8 & 7, i->op_sel = w >> 11 & 15;
            if (opcode < 256) i->sdst = w & 0x7f;
        }
    }
    if (!name) return 0;
    const Op* op;
    if (e == FLATS) op = (w >> 14 & 3) < 3 ? memory_op(w >> 14 & 3, name) : NULL;
    else op = op_named(name);
    if (!op) return 0;
    const int halves = strpbrk(op->types, "hkHK") != NULL;
    if (e == VOP3 && i->op_sel && !halves) return 0; /* which means something else to each of these */
    i->op = op;
    i->run = op->run;
    return 1;
}

/* Its name, for messages and tools, and how many dwords it takes. */
int emu_instruction_at(const u32* words, char* room, int size) {
    u32 opcode;
    const char* name;
    const Encoding e = encoding_of(words[0], &opcode, &name);
    Inst i;
    decode(&i, words);
    if (name) snprintf(room, (size_t)size, "%s%s", e == FLATS ? SEGMENTS[words[0] >> 14 & 3] : "", name);
    else snprintf(room, (size_t)size, "%s opcode %u", ENCODINGS[e], opcode);
    return i.size;
}
