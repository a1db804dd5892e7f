// gfx942: adds
// A loop that multiplies and adds to memory in each iteration, as backward attention does: it is no loop over tiles.
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.text
	.globl adds
	.p2align 8
	.type adds,@function
adds:
	s_load_dwordx2 s[8:9], s[0:1], 0x0
	s_mov_b32 s4, 16
	s_waitcnt lgkmcnt(0)
again:
	v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], 0
	s_nop 7
	global_atomic_add_f32 v0, v8, s[8:9]
	s_sub_u32 s4, s4, 1
	s_cmp_lg_u32 s4, 0
	s_cbranch_scc1 again
	s_endpgm

	.rodata
	.p2align 6
	.amdhsa_kernel adds
		.amdhsa_next_free_vgpr 16
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 16
		.amdhsa_group_segment_fixed_size 0
	.end_amdhsa_kernel
	.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx942
amdhsa.kernels:
  - .name: adds
    .symbol: adds.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 16
    .agpr_count: 0
    .max_flat_workgroup_size: 256
.end_amdgpu_metadata
