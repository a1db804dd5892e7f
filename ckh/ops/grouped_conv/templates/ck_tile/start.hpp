// How kernels are started since late 2025: a block's threads are queried from the device, once, as a process has one.
#pragma once

namespace ckh {

template <class Kernel, class... Arguments>
void start(Kernel chosen, dim3 grid, hipStream_t stream, const Arguments&... arguments) {
    static const dim3 block = Kernel::BlockSize();
    const auto run = ck_tile::make_kernel<kernel::block_per_cu>(chosen, grid, block, 0, arguments...);
    run(ck_tile::stream_config{stream});
}

}  // namespace ckh
