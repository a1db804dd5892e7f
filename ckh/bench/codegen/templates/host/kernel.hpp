// The vocabulary of a kernel's parameters. The emitted translation unit includes this first, then states its own
// parameters as constants of namespace ckh::kernel, then includes conv.hpp.
#pragma once

namespace ckh {

enum class Variant { forward, bwd_data, bwd_weight };
enum class Scheduler { intrawave, interwave };

}  // namespace ckh
