/* Runs a workgroup: its waves one after another, each from barrier to barrier. */
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
    u64 unknown_pc, most;
} Launch;

static State* waves;
static char* lds;
static int wave_count, wave_room;

static const u32 CONSTANTS[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};

u32 emu_instruction_size(void) { return sizeof(Inst); }
/* How many times waves took an instruction, and whether it once changed something: known where changes are marked. */
u64 emu_times(const Inst* i) { return i->times; }
u32 emu_has_changed(const Inst* i) { return i->changes; }

void emu_group_start(const Launch* l, u32 x, u32 y, u32 z) {
    const u32 threads = l->block[0] * l->block[1] * l->block[2];
    wave_count = (int)((threads + LANES - 1) / LANES);
    if (!lds) lds = malloc(LDS_MOST);
    memset(lds, 0xff, LDS_MOST);
    set_lds_size(l->lds_bytes);
    ++epoch;
    emu_fault = (FaultReport){0};
    if (wave_count > wave_room) waves = realloc(waves, (size_t)wave_count * sizeof *waves);
    for (; wave_room < wave_count; ++wave_room)
        waves[wave_room] = (State){.vgpr = aligned_alloc(64, VGPRS * LANES * 4), .acc = aligned_alloc(64, VGPRS * LANES * 4)};
    for (int i = 0; i < wave_count; ++i) {
        State* w = &waves[i];
        no_accesses(w);
        w->done = 0, w->taken = 0, w->lds = lds, w->scratch_bytes = l->scratch, w->mode = l->mode;
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

enum { ENDED, AT_BARRIER, UNKNOWN, TOO_LONG, FAULT };

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
    apply_mode(w);
    while (w->taken++ < l->most) {
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
    return TOO_LONG;
}

/* Every wave runs to its next barrier, then the next one, until all have ended. */
int emu_group_run(Launch* l) {
    const unsigned saved = _mm_getcsr();
    int why = ENDED, left = 1;
    while (left) {
        left = 0;
        for (int n = 0; n < wave_count; ++n) {
            if (waves[n].done) continue;
            this_wave = (u32)n;
            touch_again(&waves[n]);
            why = emu_fault.kind ? FAULT : run_wave(l, &waves[n]);
            if (why == UNKNOWN || why == TOO_LONG || why == FAULT) goto out;
            if (why == AT_BARRIER) left = 1;
        }
        ++epoch;
    }
    why = ENDED;
out:
    _mm_setcsr(saved);
    return why;
}

/* For tools and tests, between emu_group_start and the next one: a wave's registers, and the LDS. */
u32* emu_sgprs(u32 wave) { return waves[wave].sgpr; }
u32* emu_vgprs(u32 wave) { return waves[wave].vgpr; }
u32* emu_accvgprs(u32 wave) { return waves[wave].acc; }
char* emu_lds(void) { return lds; }
