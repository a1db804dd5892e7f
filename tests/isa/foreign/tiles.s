// gfx950: tiles
// A persistent kernel: a loop over tiles of C, with a loop over K in it.
	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.text
	.globl tiles
	.p2align 8
	.type tiles,@function
tiles:
	s_load_dwordx2 s[8:9], s[0:1], 0x0
	s_mov_b32 s5, 4
	s_waitcnt lgkmcnt(0)
tile:
	s_mov_b32 s4, 16
again:
	ds_read_b128 v[4:7], v0
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], v[8:11]
	v_mfma_f32_16x16x16_f16 v[12:15], v[6:7], v[4:5], v[12:15]
	s_sub_u32 s4, s4, 1
	s_cmp_lg_u32 s4, 0
	s_cbranch_scc1 again
	global_store_dwordx4 v0, v[8:11], s[8:9]
	s_sub_u32 s5, s5, 1
	s_cmp_lg_u32 s5, 0
	s_cbranch_scc1 tile
	s_endpgm
end:
	.size tiles, end-tiles

	.rodata
	.p2align 6
	.amdhsa_kernel tiles
		.amdhsa_next_free_vgpr 16
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 16
		.amdhsa_group_segment_fixed_size 1024
	.end_amdhsa_kernel
	.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
  - .name: tiles
    .symbol: tiles.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 16
    .agpr_count: 0
    .max_flat_workgroup_size: 256
.end_amdgpu_metadata
