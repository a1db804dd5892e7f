// gfx1100: rdna
// For gfx1100, whose instructions are not decoded.
extern "C" __attribute__((global)) void rdna(float* to, const float* from) { *to = *from * 2 + 1; }
