// gfx90a: nothing something
// A kernel without instructions, in front of one that has some.
	.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
	.text
	.globl nothing
	.p2align 8
	.type nothing,@function
nothing:
	.fill 4, 4, 0
	.globl something
	.p2align 8
	.type something,@function
something:
	s_endpgm

	.rodata
	.p2align 6
	.amdhsa_kernel nothing
		.amdhsa_next_free_vgpr 16
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 16
		.amdhsa_group_segment_fixed_size 0
	.end_amdhsa_kernel

	.p2align 6
	.amdhsa_kernel something
		.amdhsa_next_free_vgpr 16
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 16
		.amdhsa_group_segment_fixed_size 0
	.end_amdhsa_kernel
	.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx90a
amdhsa.kernels:
  - .name: nothing
    .symbol: nothing.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 16
    .agpr_count: 0
    .max_flat_workgroup_size: 256
  - .name: something
    .symbol: something.kd
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
