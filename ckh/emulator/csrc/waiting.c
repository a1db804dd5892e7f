/* Memory accesses that are under way until s_waitcnt waits for them: what is loaded arrives as late as that allows, and an
   access to LDS that nobody waited for is still one behind a barrier.

   Accesses of a counter end in the order of their beginning, except for scalar loads. */
#include <stdlib.h>

#include "emulator.h"

enum { MOST_DWORDS = 4 };
struct Access {
    u64 pc, exec;
    u32 *to, reg, count, keep; /* registers that are loaded, and their number in `awaited`; bits of them that are not */
    int is_scalar, is_lds; /* is_lds: the LDS, at `touched`, is loaded, not registers */
    Touched touched[2 * LANES];
    u32 touched_count, values[MOST_DWORDS * LANES];
};
static const u32 MOST[COUNTERS] = {63, 15}; /* hardware issues no more */

void no_accesses(State* t) {
    for (int c = 0; c < COUNTERS; ++c) {
        UnderWay* all = &t->under_way[c];
        all->count = 0;
        for (u32 n = 0; n < MOST[c]; ++n)
            if (!all->access[n]) all->access[n] = malloc(sizeof *all->access[n]);
    }
    t->touched_count = 0;
    memset(t->awaited, 0, sizeof t->awaited);
}

static void arrive(State* t, const Access* a) {
    for (u32 n = 0; n < a->count; ++n) --t->awaited[a->reg + n];
    if (a->is_lds)
        for (u32 n = 0; n < a->touched_count; ++n) memcpy(t->lds + a->touched[n].at, &a->values[n * MOST_DWORDS], a->touched[n].bytes);
    for (u32 n = 0; a->is_scalar && n < a->count; ++n) a->to[n] = a->values[n];
    for (u32 n = 0; !a->is_scalar && n < a->count; ++n)
        for (u32 lane = 0; lane < LANES; ++lane)
            if (is_on(a->exec, lane)) {
                u32* to = &a->to[n * LANES + lane];
                *to = (*to & a->keep) | (a->values[n * LANES + lane] & ~a->keep);
            }
}

static void end(State* t, enum Counter by, u32 n) {
    UnderWay* all = &t->under_way[by];
    Access* ended = all->access[n];
    arrive(t, ended);
    memmove(&all->access[n], &all->access[n + 1], (--all->count - n) * sizeof ended);
    all->access[all->count] = ended;
}

/* Scalar loads have all ended only when nothing else of their counter is left. */
void wait_for(State* t, enum Counter by, u32 most) {
    UnderWay* all = &t->under_way[by];
    u32 left = 0;
    for (u32 n = 0; n < all->count; ++n) left += most == 0 || !all->access[n]->is_scalar;
    for (u32 n = 0; left > most && n < all->count;)
        if (most == 0 || !all->access[n]->is_scalar) end(t, by, n), --left;
        else ++n;
}

static Access* begin(State* t, enum Counter by) {
    UnderWay* all = &t->under_way[by];
    if (all->count == MOST[by]) end(t, by, 0);
    Access* a = all->access[all->count++];
    a->pc = t->pc, a->exec = exec_of(t), a->to = NULL, a->count = 0, a->keep = 0, a->is_scalar = 0, a->is_lds = 0;
    a->touched_count = t->touched_count;
    memcpy(a->touched, t->touched, t->touched_count * sizeof *t->touched);
    t->touched_count = 0;
    return a;
}

void under_way(State* t, enum Counter by) {
    begin(t, by);
}

static void await(State* t, Access* a, u32* to, u32 reg, u32 count) {
    a->to = to, a->reg = reg, a->count = count;
    for (u32 n = 0; n < count; ++n) ++t->awaited[reg + n];
}

void arrives_late(State* t, enum Counter by, u32* file, u32 reg, u32 count, u32 keep) {
    Access* a = begin(t, by);
    u32* to = &file[reg * LANES];
    a->keep = keep;
    await(t, a, to, reg + (file == t->acc ? ACC_AT : 0), count);
    memcpy(a->values, to, count * LANES * sizeof *to);
    for (u32 n = 0; n < count * LANES; ++n)
        if (is_on(a->exec, n % LANES)) to[n] = (to[n] & keep) | (UNSET & ~keep);
}

void arrives_late_scalar(State* t, u32 reg, u32 count) {
    Access* a = begin(t, LGKM);
    u32* to = &t->sgpr[reg];
    a->is_scalar = 1;
    await(t, a, to, SGPR_AT + reg, count);
    memcpy(a->values, to, count * sizeof *to);
    for (u32 n = 0; n < count; ++n) to[n] = UNSET;
}

void arrives_late_in_lds(State* t) {
    Access* a = begin(t, VM);
    a->is_lds = 1;
    for (u32 n = 0; n < a->touched_count; ++n) {
        memcpy(&a->values[n * MOST_DWORDS], t->lds + a->touched[n].at, a->touched[n].bytes);
        memset(t->lds + a->touched[n].at, 0xff, a->touched[n].bytes);
    }
}

void too_early(const State* t, u32 reg) {
    for (int c = 0; c < COUNTERS; ++c)
        for (u32 n = 0; n < t->under_way[c].count; ++n) {
            const Access* a = t->under_way[c].access[n];
            if (reg - a->reg < a->count) fault(TOO_EARLY, t, 0, reg, 0, a->pc);
        }
}

/* Behind a barrier. */
void touch_again(State* t) {
    for (int c = 0; c < COUNTERS; ++c)
        for (u32 n = 0; n < t->under_way[c].count; ++n) {
            const Access* a = t->under_way[c].access[n];
            t->pc = a->pc;
            for (u32 k = 0; k < a->touched_count; ++k) may_touch(t, a->touched[k].lane, a->touched[k].at, a->touched[k].bytes, a->touched[k].kind);
            t->touched_count = 0;
        }
}
