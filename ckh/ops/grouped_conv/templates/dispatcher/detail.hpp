using Registered = decltype(std::declval<const ck_tile::dispatcher::GroupedConvRegistry&>().all_kernels());

// Whether one registered kernel has this name, and no other has it as a part of its own.
inline bool is_only(const Registered& all, const std::string& name)
{
    int exact = 0, parts = 0;
    for(const auto* kernel : all)
    {
        exact += kernel->name() == name;
        parts += kernel->name().find(name) != std::string::npos;
    }
    return exact == 1 && parts == 1;
}

inline bool has_name(const Registered& all, const std::string& name)
{
    for(const auto* kernel : all)
        if(!name.empty() && kernel->name() == name)
            return true;
    return false;
}

inline bool is_registered(const Registered& all, const Kernel& kernel)
{
    return has_name(all, kernel.name) || has_name(all, kernel.declared);
}

// The name by which the dispatcher finds this kernel and no other; empty if there is none.
inline std::string name_among(const Registered& all, const Kernel& kernel)
{
    if(is_only(all, kernel.name))
        return kernel.name;
    return !kernel.declared.empty() && is_only(all, kernel.declared) ? kernel.declared : "";
}

template <class P>
auto split_k_of(const P& problem, int) -> decltype(static_cast<int>(problem.split_k))
{
    return problem.split_k > 1 ? static_cast<int>(problem.split_k) : 1;
}
template <class P>
int split_k_of(const P&, long) { return 1; }
template <class P>
int split_k_of(const P& problem) { return split_k_of(problem, 0); }

template <class P>
auto padding_of(const P& problem, int) -> decltype(problem.padding_left)
{
    return problem.padding_left;
}
template <class P>
auto padding_of(const P& problem, long) -> decltype(problem.padding)
{
    return problem.padding;
}
template <class P>
auto is_symmetric(const P& problem, int) -> decltype(problem.padding_left == problem.padding_right)
{
    return problem.padding_left == problem.padding_right;
}
template <class P>
bool is_symmetric(const P&, long) { return true; }

// Whether a problem that states an element type states this one.
template <class P>
auto has_dtype(const P& problem, const char* dtype, int) -> decltype(problem.dtype_in == dtype)
{
    return problem.dtype_in.empty() || problem.dtype_in == dtype;
}
template <class P>
bool has_dtype(const P&, const char*, long) { return true; }

template <class P>
auto ndim_of(const P& problem, int) -> decltype(static_cast<int>(problem.ndim_spatial))
{
    return problem.ndim_spatial;
}
template <class P>
int ndim_of(const P& problem, long)
{
    const bool is_flat = problem.input_spatial[0] == 1 && problem.filter_spatial[0] == 1;
    return is_flat ? 2 : 3;
}
