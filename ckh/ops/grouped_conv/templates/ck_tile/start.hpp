// How kernels are started since late 2025: a block's threads are queried from the device, once, as a process has one.
#pragma once

namespace ckh {

template <class Kernel, class... Arguments>
Launch starting(Kernel, dim3 grid, const Arguments&... arguments) {
    static const dim3 block = Kernel::BlockSize();
    return launch_of(ck_tile::kentry<kernel::block_per_cu, OwnKernel<Kernel>, Arguments...>, grid, block, arguments...);
}

}  // namespace ckh
