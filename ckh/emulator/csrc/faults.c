/* What went wrong first, and where the group was. */
#include "emulator.h"

FaultReport emu_fault;
u32 this_wave, epoch = 1;

void fault(enum Fault kind, const State* t, u32 lane, u32 address, u32 other, u64 other_pc) {
    if (!emu_fault.kind) emu_fault = (FaultReport){kind, this_wave, other, lane, address, t->pc, other_pc};
}

void not_emulated(const State* t) { fault(NOT_EMULATED, t, 0, 0, 0, 0); }

Window emu_window, emu_arguments;
static int lies_in(Window w, u64 at, u32 bytes) { return bytes <= w.bytes && at - w.start <= w.bytes - bytes; }

enum { FIRST_PAGE = 4096 }; /* of a process: none of its memory */
int may_touch_memory(const State* t, u32 lane, u64 at, u32 bytes) {
    if ((!emu_window.bytes && at >= FIRST_PAGE) || lies_in(emu_window, at, bytes) || lies_in(emu_arguments, at, bytes)) return 1;
    fault(MEMORY_RANGE, t, lane, (u32)at, 0, 0);
    return 0;
}
