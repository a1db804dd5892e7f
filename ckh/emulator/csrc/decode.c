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

enum { SDWA_MARK = 249, DPP_MARK = 250, FIRST_VOP1 = 320, FMAMK = 23, FMAAK = 24, LD_SCALE = 44, SETREG_IMM = 20, BARRIER = 10 };

/* gfx950: a matrix instruction with scales has four words; the third and fourth are those of the one without. */
static const char* scaled_name(const u32* words) {
    switch (words[2] >> 16 & 0x7f) {
        case 45: return "v_mfma_scale_f32_16x16x128_f8f6f4";
        case 46: return "v_mfma_scale_f32_32x32x64_f8f6f4";
        default: return NULL;
    }
}

int emu_is_gfx90a = 0;

static const char* vop3p_name(const u32* words, u32 opcode) {
    if (opcode == LD_SCALE) return scaled_name(words);
    const char* other = emu_is_gfx90a && opcode >= 80 && opcode < 104 ? names_vop3p_gfx90a[opcode - 80] : NULL;
    return other ? other : names_vop3p[opcode];
}

static Encoding encoding_of(const u32* words, u32* opcode, const char** name) {
    const u32 w = words[0];
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
            if (w >> 23 == 0x1a7) {
                *opcode = w >> 16 & 0x7f;
                *name = vop3p_name(words, *opcode);
                return VOP3P;
            }
            *opcode = w >> 16 & 0x3ff;
            *name = *opcode < 256 ? names_vopc[*opcode] : *opcode < FIRST_VOP1 ? names_vop2[*opcode - 256]
                    : *opcode < 448 ? names_vop1[*opcode - FIRST_VOP1] : names_vop3[*opcode];
            return VOP3;
        case 0x36: IS(DS, names_ds, w >> 17 & 0xff);
        case 0x37: IS(FLATS, names_flat, w >> 18 & 0x7f);
        case 0x38: IS(MUBUF, names_mubuf, w >> 18 & 0x7f);
        default: *opcode = 0; return NOTHING;
    }
#undef IS
}

/* VOP1, VOP2 and VOPC whose second word has SDWA's or DPP's fields. */
static void decode_form(Inst* i, Encoding e, u32 x) {
    const int is_sdwa = i->form == SDWA;
    i->select = x;
    i->src[0] = (x & 0xff) + FIRST_VGPR;
    i->neg = (uint8_t)((x >> 20 & 1) | (is_sdwa ? x >> 28 & 1 : x >> 22 & 1) << 1);
    i->abs = (uint8_t)((x >> 21 & 1) | (is_sdwa ? x >> 29 & 1 : x >> 23 & 1) << 1);
    if (!is_sdwa) return;
    if (x >> 23 & 1) i->src[0] -= FIRST_VGPR;
    if (x >> 31) i->src[1] -= FIRST_VGPR;
    if (e != VOPC) { i->clamp = x >> 13 & 1, i->omod = x >> 14 & 3; return; }
    if (x >> 15 & 1) i->sdst = x >> 8 & 0x7f;
    i->select = (x & ~0x7f00u) | 6 << 8;
}

/* Which byte or word of a result or source, and what becomes of a result's other bits, have values that mean nothing. */
static int is_reserved_sdwa(Encoding e, u32 x) {
    return (x >> 8 & 7) == 7 || (x >> 11 & 3) == 3 || (x >> 16 & 7) == 7 || (e != VOP1 && (x >> 24 & 7) == 7);
}

/* Instructions of 64 bits, and SDWA and DPP, have no room for a literal. */
static int lacks_literal(const Inst* i, Encoding e) {
    return (e == VOP3 || e == VOP3P || i->form) && (i->src[0] == LITERAL || i->src[1] == LITERAL || i->src[2] == LITERAL);
}

static void decode_vop3(Inst* i, Encoding e, u32 w, u32 x) {
    i->src[0] = x & 0x1ff, i->src[1] = x >> 9 & 0x1ff, i->src[2] = x >> 18 & 0x1ff;
    i->dst = w & 0xff, i->neg = x >> 29, i->clamp = w >> 15 & 1;
    if (e == VOP3P) {
        i->op_sel = w >> 11 & 7, i->op_sel_hi = (uint8_t)((x >> 27 & 3) | (w >> 14 & 1) << 2), i->neg_hi = w >> 8 & 7;
        return;
    }
    const u32 op = i->opcode;
    const int has_carry = (op >= 281 && op <= 286) || op == 480 || op == 481 || op == 488 || op == 489;
    i->omod = x >> 27 & 3, i->sdst = VCC;
    if (has_carry) i->sdst = w >> 8 & 0x7f;
    else i->abs = w >> 8 & 7, i->op_sel = w >> 11 & 15;
    if (op < 256) i->sdst = w & 0x7f; /* a compare */
}

/* Operands of the first word, and how many words there are; 0: an encoding that is not known. */
static int decode_first(Inst* i, Encoding e, u32 w) {
    switch (e) {
        case SOP2: case SOPC:
            i->src[0] = w & 0xff, i->src[1] = w >> 8 & 0xff, i->dst = w >> 16 & 0x7f;
            return i->src[0] == LITERAL || i->src[1] == LITERAL ? 2 : 1;
        case SOP1: i->src[0] = w & 0xff, i->dst = w >> 16 & 0x7f; return i->src[0] == LITERAL ? 2 : 1;
        case SOPK: i->dst = w >> 16 & 0x7f; return i->opcode == SETREG_IMM ? 2 : 1;
        case SOPP: i->is_barrier = i->opcode == BARRIER; return 1;
        case VOP1: case VOP2: case VOPC:
            i->src[0] = w & 0x1ff, i->src[1] = FIRST_VGPR + (w >> 9 & 0xff), i->src[2] = VCC;
            i->dst = e == VOPC ? 0 : w >> 17 & 0xff, i->sdst = VCC;
            if (e == VOP2 && i->opcode == FMAMK) { i->src[2] = i->src[1], i->src[1] = LITERAL; return 2; }
            if (e == VOP2 && i->opcode == FMAAK) { i->src[2] = LITERAL; return 2; }
            i->form = i->src[0] == SDWA_MARK ? SDWA : i->src[0] == DPP_MARK ? DPP : PLAIN;
            return i->src[0] == LITERAL || i->form ? 2 : 1;
        case VOP3P: return i->opcode == LD_SCALE ? 4 : 2;
        case SMEM: case VOP3: case DS: case FLATS: case MUBUF: return 2;
        default: return 0;
    }
}

/* The words from an instruction on, and zeros for those behind the end of the program. */
typedef struct { u32 w[4]; } Words;
static Words words_of(const u32* at, u64 left) {
    Words words = {{0}};
    memcpy(words.w, at, left < 4 ? left * sizeof *at : sizeof words.w);
    return words;
}

int decode(Inst* i, const u32* at, u64 left) {
    const Words all = words_of(at, left);
    const u32 *words = all.w, w = words[0];
    u32 opcode;
    const char* name;
    const Encoding e = encoding_of(words, &opcode, &name);
    *i = (Inst){.opcode = (uint16_t)opcode, .size = 1};
    const int size = decode_first(i, e, w);
    if (size) i->size = (uint8_t)size;
    memcpy(i->w, words, i->size * sizeof *words);
    i->literal = i->size > 1 ? words[1] : 0;
    if (i->form) decode_form(i, e, i->w[1]);
    if (e == VOP3 || e == VOP3P) decode_vop3(i, e, w, i->w[1]);
    if (!name || i->size > left) return 0;
    if (lacks_literal(i, e) || (i->form == SDWA && is_reserved_sdwa(e, i->select))) return 0;
    const Op* op;
    if (e == FLATS) op = (w >> 14 & 3) < 3 ? memory_op(w >> 14 & 3, name) : NULL;
    else op = op_named(name);
    if (!op) return 0;
    if (i->form && !*op->types) return 0; /* moves between lanes, which have neither SDWA nor DPP */
    /* op_sel means something else to each of the others */
    if (e == VOP3 && i->op_sel && !strpbrk(op->types, "hkHK")) return 0;
    i->op = op;
    i->run = op->run;
    return 1;
}

/* Its name, for messages and tools, and how many dwords it takes of those that are left of the program. */
int emu_instruction_at(const u32* at, u64 left, char* room, int size) {
    const Words words = words_of(at, left);
    u32 opcode;
    const char* name;
    const Encoding e = encoding_of(words.w, &opcode, &name);
    Inst i;
    decode(&i, at, left);
    if (name) snprintf(room, (size_t)size, "%s%s", e == FLATS ? SEGMENTS[words.w[0] >> 14 & 3] : "", name);
    else snprintf(room, (size_t)size, "%s opcode %u", ENCODINGS[e], opcode);
    return i.size < left ? i.size : (int)left;
}
