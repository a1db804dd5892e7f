template <class P>
auto split(P& problem, int parts, int) -> decltype(problem.split_k = parts, void())
{
    problem.split_k = parts;
}
template <class P>
void split(P&, int, long) {}

template <class P>
auto set_ndim(P& problem, int ndim, int) -> decltype(problem.ndim_spatial = ndim, void())
{
    problem.ndim_spatial = ndim;
}
template <class P>
void set_ndim(P&, int, long) {}

template <class P, class Sizes>
auto pad(P& problem, const Sizes& sizes, int) -> decltype(problem.padding_left = sizes, void())
{
    problem.padding_left = problem.padding_right = sizes;
}
template <class P, class Sizes>
void pad(P& problem, const Sizes& sizes, long) { problem.padding = sizes; }

struct Row
{
    GroupedConvOp op;
    int ndim_spatial, tile_m, tile_n, tile_k, wave_m, wave_n, wave_k, warp_m, warp_n, warp_k;
    int vector_size_a, vector_size_b, vector_size_c, num_groups_to_merge;
    const char *dtype_in, *layout, *pipeline, *scheduler, *epilogue, *name;
};

void add(const Row& row)
{
    GroupedConvKernelKey key;
    key.op = row.op, key.ndim_spatial = row.ndim_spatial;
    key.tile_m = row.tile_m, key.tile_n = row.tile_n, key.tile_k = row.tile_k;
    key.wave_m = row.wave_m, key.wave_n = row.wave_n, key.wave_k = row.wave_k;
    key.warp_m = row.warp_m, key.warp_n = row.warp_n, key.warp_k = row.warp_k;
    key.vector_size_a = row.vector_size_a, key.vector_size_b = row.vector_size_b, key.vector_size_c = row.vector_size_c;
    key.num_groups_to_merge = row.num_groups_to_merge;
    key.dtype_in = row.dtype_in, key.layout = row.layout, key.pipeline = row.pipeline;
    key.scheduler = row.scheduler, key.epilogue = row.epilogue;
    GroupedConvRegistry::instance().register_kernel(
        key, std::make_shared<GroupedConvKernelInstance>(key, row.name, nullptr));
}

std::string pick(const std::vector<std::int64_t>& v)
{
    static const Heuristic heuristic("@PATH@");
    static GroupedConvDispatcher dispatcher(&GroupedConvRegistry::instance());
    dispatcher.set_heuristic(heuristic);
    dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
    const GroupedConvOp ops[] = {
        GroupedConvOp::Forward, GroupedConvOp::BackwardData, GroupedConvOp::BackwardWeight};
    using Sizes = std::array<std::int64_t, 3>;
    GroupedConvProblem p;
    p.op = ops[v[0]];
    set_ndim(p, int(v[3]), 0);
    p.N = v[4], p.C = v[5], p.K = v[6], p.G = v[7];
    p.input_spatial = {v[8], v[9], v[10]};
    p.filter_spatial = {v[11], v[12], v[13]};
    p.stride = {v[14], v[15], v[16]};
    pad(p, Sizes{v[17], v[18], v[19]}, 0);
    p.dilation = {v[20], v[21], v[22]};
    const int parts = heuristic.best_split_k(p);
    split(p, parts, 0);
    const GroupedConvKernelInstance* found = dispatcher.select_kernel(p);
    return (found ? found->name() : "no kernel") + (parts > 1 ? " splitK=" + std::to_string(parts) : "");
}
