// gfx942: threads
// 1,024 threads a block and few registers: two blocks take all wave slots. The loop is of floating point alone.
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1024, 1024))) void threads(
    float* to, float a, float b, int count) {
    float sum = a;
#pragma nounroll
    for (int i = 0; i < count; ++i) sum = __builtin_amdgcn_rcpf(__builtin_amdgcn_exp2f(sum * b) + a);
    to[__builtin_amdgcn_workitem_id_x()] = sum;
}
