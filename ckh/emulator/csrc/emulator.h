/* What the emulator's parts share: a wave, a decoded instruction, and the tables of instructions. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

/* Registers: sgpr[0..127], then what else a scalar source may name: inline constants [128..248], SCC, the literal.
   vgpr and acc: [register * LANES + lane]. */
enum {
    LANES = 64, VCC = 106, M0 = 124, EXEC = 126, SHARED_BASE = 235, PRIVATE_BASE = 237, VCCZ = 251, EXECZ = 252, SCC = 253,
    LITERAL = 255, FIRST_VGPR = 256, SGPRS = 256, NAMED_SGPRS = 128, VGPRS = 512, ACC_AT = 256, SGPR_AT = 512, REGISTERS = 640
};

/* Where flat addresses are LDS or scratch memory: above all that a process of the host has. */
#define SHARED_APERTURE 0x0001000000000000ull
#define PRIVATE_APERTURE 0x0002000000000000ull

/* Where an instruction touched the LDS, and accesses to memory that were not waited for (waiting.c). */
typedef struct { u32 at; uint8_t lane, bytes, kind; } Touched;
typedef struct Access Access;
typedef struct { Access* access[63]; u32 count; } UnderWay;
enum Counter { VM, LGKM, COUNTERS };

typedef struct State {
    u32 sgpr[SGPRS];
    u32 *vgpr, *acc;
    char *lds, *scratch;
    u64 pc, next;        /* of the instruction that runs, and where it goes on */
    u32 scratch_bytes;   /* of a lane */
    u32 mode;            /* rounding and denormals, as the register MODE has them */
    u64 taken;           /* instructions */
    int done;
    UnderWay under_way[COUNTERS];
    Touched touched[2 * LANES];
    u32 touched_count;
    uint8_t awaited[REGISTERS]; /* loads under way to each register: vgpr, acc, sgpr */
} State;

typedef struct Inst Inst;
typedef void Run(State*, const Inst*);

/* An instruction by name: what carries it out, and for vector arithmetic (operands.c) the function and the types.
   a and b are for `run` alone. */
typedef struct { const char* name; Run* run; void (*function)(void); const char* types; int a, b; } Op;

/* A decoded instruction: its fields as AMD's manuals name them. */
struct Inst {
    Run* run; /* NULL: not decoded yet */
    const Op* op;
    u32 w[4], literal, select; /* its words; the one with the fields of SDWA or DPP */
    uint16_t src[3], opcode;
    u64 times; /* that it was taken */
    uint8_t size, is_barrier, changes, dst, sdst, form, neg, abs, neg_hi, omod, clamp, op_sel, op_sel_hi;
};
enum Form { PLAIN, SDWA, DPP };

/* faults.c: what went wrong first, which launch.py puts into words; the wave that runs, and how many barriers were passed. */
typedef struct { u32 kind, wave, other, lane, address; u64 pc, other_pc; } FaultReport; /* as launch.py declares it */
extern FaultReport emu_fault;
enum Fault { NONE, RACE_READ, RACE_WRITE, LDS_RANGE, NOT_EMULATED, SCRATCH_RANGE, MEMORY_RANGE, TOO_EARLY };
void fault(enum Fault kind, const State* t, u32 lane, u32 address, u32 other, u64 other_pc);
void not_emulated(const State* t);
extern u32 this_wave, epoch;

/* faults.c: where kernels may touch the host's memory: in `emu_window`, which tests set, and their arguments; everywhere if
   there is no window. */
typedef struct { u64 start, bytes; } Window;
extern Window emu_window, emu_arguments;
int may_touch_memory(const State* t, u32 lane, u64 at, u32 bytes);

/* Registers, numbered as in `awaited`, that an instruction reads or writes while a load of them is under way are a fault. */
void too_early(const State* t, u32 reg);
static inline void uses(const State* t, u32 reg, u32 count) {
    for (u32 n = reg; n < reg + count && n < REGISTERS; ++n)
        if (t->awaited[n]) too_early(t, n);
}
static inline void uses_vector(const State* t, const u32* file, u32 reg, u32 count) { uses(t, reg + (file == t->acc ? ACC_AT : 0), count); }

static inline u64 pair(const u32* s) { return s[0] | (u64)s[1] << 32; }
static inline void set_pair(u32* s, u64 value) { s[0] = (u32)value, s[1] = (u32)(value >> 32); }
/* Results in SGPRs: those behind s127 are constants, and a fault. */
static inline int are_sgprs(const State* t, u32 first, u32 count) {
    uses(t, SGPR_AT + first, count);
    if (first + count <= NAMED_SGPRS) return 1;
    not_emulated(t);
    return 0;
}
static inline void write_sgpr(State* t, u32 to, u32 value) { if (are_sgprs(t, to, 1)) t->sgpr[to] = value; }
static inline void write_sgpr_pair(State* t, u32 to, u64 value) { if (are_sgprs(t, to, 2)) set_pair(&t->sgpr[to], value); }
static inline u64 sgpr_pair(const State* t, u32 from) { return are_sgprs(t, from, 2) ? pair(&t->sgpr[from]) : 0; }
static inline u64 exec_of(const State* t) { return pair(&t->sgpr[EXEC]); }
static inline int is_on(u64 exec, u32 lane) { return exec >> lane & 1; }

/* The instructions of a part, by name; NULL if it has none of that name. */
typedef const Op* OpTable(const char* name);
OpTable vector_op, compare_op, convert_op, lane_op, scalar_op, control_op, matrix_op, buffer_op, lds_op;
const Op* memory_op(u32 segment, const char* name);
static inline const Op* op_in(const Op* table, size_t count, const char* name) {
    for (size_t n = 0; n < count; ++n)
        if (!strcmp(table[n].name, name)) return &table[n];
    return NULL;
}

/* decode.c: the architecture, where it differs; whether an instruction is one that is emulated, of a program that has `left`
   words from there on; size and w hold in any case. */
extern int emu_is_gfx90a;
int decode(Inst* i, const u32* words, u64 left);

/* control.c */
void apply_mode(const State* t);

/* waiting.c: an access begins: one that only counts, one to vector or to scalar registers, whose values are there already,
   and one to LDS. */
enum { UNSET = 0x7fc0dead }; /* a NaN, and as a number absurd: registers that nobody set */
void no_accesses(State* t);
void under_way(State* t, enum Counter by);
void arrives_late(State* t, enum Counter by, u32* file, u32 reg, u32 count, u32 keep);
void arrives_late_scalar(State* t, u32 reg, u32 count);
void arrives_late_in_lds(State* t);
void wait_for(State* t, enum Counter by, u32 most);
void touch_again(State* t);

/* lds.c */
enum Touch { READ, WRITE, ATOMIC };
int may_touch(State* t, u32 lane, u32 at, u32 bytes, enum Touch kind);
void set_lds_size(u32 bytes);
enum { LDS_MOST = 160 << 10 };
