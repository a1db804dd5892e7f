// gfx90a: lds
// LDS is the busiest pipe, and its size bounds the blocks.
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(256, 256))) void lds(float* to, int count) {
    __attribute__((shared)) static float tile[6000];
    unsigned at = __builtin_amdgcn_workitem_id_x();
    float sum = 0;
#pragma nounroll
    for (int i = 0; i < count; ++i) {
        tile[at] = sum;
        __builtin_amdgcn_s_barrier();
        sum += tile[at ^ 1] + tile[at ^ 2] + tile[at ^ 4];
    }
    to[at] = sum;
}
