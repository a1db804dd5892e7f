        using Op = ck_tile::dispatcher::GroupedConvOp;
        if(!detail::is_symmetric(problem, 0) || !detail::has_dtype(problem, "@DTYPE@", 0))
            return false;
        const auto padding = detail::padding_of(problem, 0);
        p.direction = problem.op == Op::Forward        ? CKH_FORWARD
                      : problem.op == Op::BackwardData ? CKH_BWD_DATA
                                                       : CKH_BWD_WEIGHT;
        p.dtype = CKH_@DTYPE_IN_C@;
        p.ndim  = detail::ndim_of(problem, 0);
        p.n = problem.N, p.c = problem.C, p.k = problem.K, p.g = problem.G;
        p.di = problem.input_spatial[0], p.hi = problem.input_spatial[1], p.wi = problem.input_spatial[2];
        p.z = problem.filter_spatial[0], p.y = problem.filter_spatial[1], p.x = problem.filter_spatial[2];
        p.stride_d = problem.stride[0], p.stride_h = problem.stride[1], p.stride_w = problem.stride[2];
        p.pad_d = padding[0], p.pad_h = padding[1], p.pad_w = padding[2];
        p.dilation_d = problem.dilation[0], p.dilation_h = problem.dilation[1], p.dilation_w = problem.dilation[2];
