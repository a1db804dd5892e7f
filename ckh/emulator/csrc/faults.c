/* What went wrong first, and where the group was. */
#include "emulator.h"

FaultReport emu_fault;
u32 this_wave, epoch = 1;

void fault(enum Fault kind, const State* t, u32 lane, u32 address, u32 other, u64 other_pc) {
    if (!emu_fault.kind) emu_fault = (FaultReport){kind, this_wave, other, lane, address, t->pc, other_pc};
}

void not_emulated(const State* t) { fault(NOT_EMULATED, t, 0, 0, 0, 0); }
