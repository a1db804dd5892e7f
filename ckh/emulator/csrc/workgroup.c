/* Runs a workgroup: its waves one after another, each from barrier to barrier. A wave that takes very long to the next one
   may wait for another workgroup: then that one gets its turn, and this one goes on later. */
#include <stdlib.h>
#include <xmmintrin.h>

#include "numbers.h"

typedef struct {
    Inst* program;
    u64 base, dwords;          /* where the program lies */
    u64 entry;
    u32 block[3], scratch;     /* scratch: bytes a lane */
    u32 user_count, id_bits, scratch_offset, mode, lds_bytes; /* scratch_offset: whether an SGPR has one */
    u32 user[32];
    u64 instructions;          /* counted, of all waves */
    u64 unknown_pc;
    u64 most, turn;            /* instructions of a wave: in all; until other workgroups get their turn, 0: they never do */
} Launch;

/* A workgroup that the device holds: where it goes on, whether a wave has reached the next barrier, and its epoch. */
typedef struct { State* waves; char* lds; int count, room, next, left; u32 epoch; } Group;
enum { MOST_GROUPS = 64 }; /* as in launch.py */
static Group groups[MOST_GROUPS], *group = groups;
static u32 last_epoch = 1;

static const u32 CONSTANTS[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};

u32 emu_instruction_size(void) { return sizeof(Inst); }
/* How many times waves took an instruction, and whether it once changed something: known where changes are marked. */
u64 emu_times(const Inst* i) { return i->times; }
u32 emu_has_changed(const Inst* i) { return i->changes; }

/* Which of the workgroups that the device holds the other functions are about. */
void emu_group_select(u32 number) { group = &groups[number % MOST_GROUPS]; }

static void begin_epoch(Group* g) { epoch = g->epoch = ++last_epoch, g->next = g->left = 0; }

void emu_group_start(const Launch* l, u32 x, u32 y, u32 z) {
    Group* g = group;
    const u32 threads = l->block[0] * l->block[1] * l->block[2];
    g->count = (int)((threads + LANES - 1) / LANES);
    if (!g->lds) g->lds = malloc(LDS_MOST);
    memset(g->lds, 0xff, LDS_MOST);
    set_lds_size(l->lds_bytes);
    begin_epoch(g);
    emu_fault = (FaultReport){0};
    if (g->count > g->room) g->waves = realloc(g->waves, (size_t)g->count * sizeof *g->waves);
    for (; g->room < g->count; ++g->room)
        g->waves[g->room] = (State){.vgpr = aligned_alloc(64, VGPRS * LANES * 4), .acc = aligned_alloc(64, VGPRS * LANES * 4)};
    for (int i = 0; i < g->count; ++i) {
        State* w = &g->waves[i];
        no_accesses(w);
        w->done = 0, w->taken = 0, w->lds = g->lds, w->scratch_bytes = l->scratch, w->mode = l->mode;
        w->scratch = realloc(w->scratch, l->scratch ? (size_t)l->scratch * LANES : 1);
        memset(w->scratch, 0xff, (size_t)l->scratch * LANES);
        for (int r = 0; r < SGPRS; ++r) w->sgpr[r] = r < 128 ? UNSET : 0;
        for (u32 r = 0; r < VGPRS * LANES; ++r) w->vgpr[r] = w->acc[r] = UNSET;
        for (int r = 0; r <= 64; ++r) w->sgpr[128 + r] = (u32)r;
        for (int r = 0; r < 16; ++r) w->sgpr[193 + r] = (u32)(-r - 1);
        for (int r = 0; r < 9; ++r) w->sgpr[240 + r] = CONSTANTS[r];
        const u32 lanes = threads - (u32)i * LANES < LANES ? threads - (u32)i * LANES : LANES;
        set_pair(&w->sgpr[EXEC], lanes == 64 ? ~0ull : (1ull << lanes) - 1);
        w->next = l->entry;
        u32 at = 0;
        for (; at < l->user_count; ++at) w->sgpr[at] = l->user[at];
        const u32 ids[3] = {x, y, z};
        for (int d = 0; d < 3; ++d)
            if (l->id_bits >> d & 1) w->sgpr[at++] = ids[d];
        if (l->scratch_offset) w->sgpr[at++] = 0;
        for (u32 lane = 0; lane < lanes; ++lane) {
            const u32 t = (u32)i * LANES + lane, bx = l->block[0], by = l->block[1];
            w->vgpr[lane] = t % bx | t / bx % by << 10 | t / bx / by << 20;
        }
    }
}

enum { ENDED, AT_BARRIER, UNKNOWN, TOO_LONG, FAULT, WAITS };

/* For tools: count instructions, and mark those that once changed a scalar register, a result's register or the way. Of matrix
   instructions and of memory it does not say. */
int emu_mark_changes = 0;
static void run_marking(State* w, Inst* i) {
    enum { RESULTS = 2 * LANES };
    static u32 sgpr[SGPRS], vgpr[RESULTS], acc[RESULTS];
    const u64 next = w->next;
    u32 *v = &w->vgpr[i->dst * LANES], *a = &w->acc[i->dst * LANES];
    memcpy(sgpr, w->sgpr, sizeof sgpr), memcpy(vgpr, v, sizeof vgpr), memcpy(acc, a, sizeof acc);
    i->run(w, i);
    ++i->times;
    if (w->next != next || memcmp(sgpr, w->sgpr, sizeof sgpr) || memcmp(vgpr, v, sizeof vgpr) || memcmp(acc, a, sizeof acc)) i->changes = 1;
}

static int run_wave(Launch* l, State* w) {
    const u64 most = l->turn && l->most - w->taken > l->turn ? w->taken + l->turn : l->most;
    apply_mode(w);
    while (w->taken++ < most) {
        const u64 pc = w->next, at = (pc - l->base) / 4;
        w->pc = pc;
        if (at >= l->dwords || pc % 4) { l->unknown_pc = pc; return UNKNOWN; }
        Inst* i = &l->program[at];
        if (!i->run && !decode(i, (const u32*)pc, l->dwords - at)) { l->unknown_pc = pc; return UNKNOWN; }
        w->next = pc + i->size * 4u;
        if (emu_mark_changes) run_marking(w, i);
        else i->run(w, i);
        ++l->instructions;
        if (emu_fault.kind) return FAULT;
        if (w->done) return ENDED;
        if (i->is_barrier) return AT_BARRIER;
    }
    return --w->taken < l->most ? WAITS : TOO_LONG;
}

/* Every wave runs to its next barrier, then the next one, until all have ended, or one waits. */
int emu_group_run(Launch* l) {
    Group* g = group;
    const unsigned saved = _mm_getcsr();
    int why = ENDED;
    epoch = g->epoch;
    do {
        for (; g->next < g->count; ++g->next) {
            State* w = &g->waves[g->next];
            if (w->done) continue;
            this_wave = (u32)g->next;
            touch_again(w);
            why = emu_fault.kind ? FAULT : run_wave(l, w);
            if (why != ENDED && why != AT_BARRIER) goto out;
            if (why == AT_BARRIER) g->left = 1;
        }
        why = ENDED;
        if (!g->left) break;
        begin_epoch(g);
    } while (1);
out:
    _mm_setcsr(saved);
    return why;
}

/* For tools and tests, between emu_group_start and the next one: a wave's registers, and the LDS. */
u32* emu_sgprs(u32 wave) { return group->waves[wave].sgpr; }
u32* emu_vgprs(u32 wave) { return group->waves[wave].vgpr; }
u32* emu_accvgprs(u32 wave) { return group->waves[wave].acc; }
char* emu_lds(void) { return group->lds; }
