// Copyright (c) Advanced Micro Devices, Inc., or its affiliates.
// SPDX-License-Identifier: MIT
//
// Part of dispatcher/include/ck_tile/dispatcher/grouped_conv_kernel_decl.hpp of ROCm/composable_kernel at
// 643ad35de26023e4679e5099839f72cda4e8acad: what declares a kernel and names it.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace ck_tile {
namespace dispatcher {
namespace grouped_conv_decl {

constexpr int ANY_INT = -1;

class GroupedConvSignature
{
    public:
    std::string dtype_in_  = "fp16";    // Input data type
    std::string dtype_wei_ = "fp16";    // Weight data type
    std::string dtype_out_ = "fp16";    // Output data type
    std::string layout_    = "nhwc";    // Data layout: nhwc, nchw
    std::string conv_op_   = "forward"; // forward, bwd_data, bwd_weight
    int num_dims_          = 2;         // Spatial dimensions: 1, 2, or 3

    GroupedConvSignature& dtype(const std::string& all)
    {
        dtype_in_ = dtype_wei_ = dtype_out_ = all;
        return *this;
    }
    GroupedConvSignature& layout(const std::string& l)
    {
        layout_ = l;
        return *this;
    }
    GroupedConvSignature& conv_type(const std::string& op)
    {
        conv_op_ = op;
        return *this;
    }

    std::string op_str() const
    {
        if(conv_op_ == "forward")
            return "fwd";
        if(conv_op_ == "bwd_data")
            return "bwd_data";
        if(conv_op_ == "bwd_weight")
            return "bwd_weight";
        return conv_op_;
    }
};

class GroupedConvAlgorithm
{
    public:
    int tile_m_ = 1;   // Tile M (output spatial * batch)
    int tile_n_ = 128; // Tile N (output channels K)
    int tile_k_ = 128; // Tile K (input channels C)
    int wave_m_ = ANY_INT;
    int wave_n_ = ANY_INT;
    int wave_k_ = 1;
    int warp_m_ = ANY_INT;
    int warp_n_ = ANY_INT;
    int warp_k_ = 16;
    int vector_a_ = 4; // Input vector size
    int vector_b_ = 8; // Weight vector size
    int vector_c_ = 8; // Output vector size
    std::string pipeline_    = "compv4";
    std::string scheduler_   = "intrawave";
    std::string epilogue_    = "cshuffle";
    int block_per_cu_        = 1;
    int num_wave_groups_     = 1;
    int num_groups_to_merge_ = 1;
    bool double_smem_buffer_ = false;

    GroupedConvAlgorithm& tile(int m, int n, int k)
    {
        tile_m_ = m;
        tile_n_ = n;
        tile_k_ = k;
        return *this;
    }
    GroupedConvAlgorithm& wave(int m, int n, int k = 1)
    {
        wave_m_ = m;
        wave_n_ = n;
        wave_k_ = k;
        return *this;
    }
    GroupedConvAlgorithm& warp(int m, int n, int k = 16)
    {
        warp_m_ = m;
        warp_n_ = n;
        warp_k_ = k;
        return *this;
    }
    GroupedConvAlgorithm& vector_sizes(int a, int b, int c)
    {
        vector_a_ = a;
        vector_b_ = b;
        vector_c_ = c;
        return *this;
    }
    GroupedConvAlgorithm& pipeline(const std::string& p)
    {
        pipeline_ = p;
        return *this;
    }
    GroupedConvAlgorithm& scheduler(const std::string& s)
    {
        scheduler_ = s;
        return *this;
    }
    GroupedConvAlgorithm& double_smem_buffer(bool d)
    {
        double_smem_buffer_ = d;
        return *this;
    }
};

struct GroupedConvKernelDecl
{
    GroupedConvSignature signature;
    GroupedConvAlgorithm algorithm;
    std::string arch = "gfx942";

    GroupedConvKernelDecl() = default;

    GroupedConvKernelDecl(const GroupedConvSignature& sig,
                          const GroupedConvAlgorithm& algo,
                          const std::string& a = "gfx942")
        : signature(sig), algorithm(algo), arch(a)
    {
    }

    std::string name() const
    {
        std::ostringstream oss;
        // Generate full kernel name similar to GEMM:
        // grouped_conv_<op>_<dtype>_<layout>_<ndim>d_<pipeline>_<epilogue>_<scheduler>_<tile>_<wave>_<warp>
        oss << "grouped_conv_" << signature.op_str() << "_" << signature.dtype_in_ << "_"
            << signature.layout_ << "_" << signature.num_dims_ << "d" << "_" << algorithm.pipeline_
            << "_" << algorithm.epilogue_ << "_" << algorithm.scheduler_ << "_" << algorithm.tile_m_
            << "x" << algorithm.tile_n_ << "x" << algorithm.tile_k_ << "_" << algorithm.wave_m_
            << "x" << algorithm.wave_n_ << "x" << algorithm.wave_k_ << "_" << algorithm.warp_m_
            << "x" << algorithm.warp_n_ << "x" << algorithm.warp_k_;
        return oss.str();
    }
};

class GroupedConvKernelSet
{
    public:
    GroupedConvKernelSet() = default;

    GroupedConvKernelSet& add(const GroupedConvSignature& sig,
                              const GroupedConvAlgorithm& algo,
                              const std::string& arch = "gfx942")
    {
        decls_.emplace_back(sig, algo, arch);
        return *this;
    }

    const std::vector<GroupedConvKernelDecl>& declarations() const { return decls_; }

    private:
    std::vector<GroupedConvKernelDecl> decls_;
};

} // namespace grouped_conv_decl

using GroupedConvSignature  = grouped_conv_decl::GroupedConvSignature;
using GroupedConvAlgorithm  = grouped_conv_decl::GroupedConvAlgorithm;
using GroupedConvKernelDecl = grouped_conv_decl::GroupedConvKernelDecl;
using GroupedConvKernelSet  = grouped_conv_decl::GroupedConvKernelSet;

} // namespace dispatcher
} // namespace ck_tile
