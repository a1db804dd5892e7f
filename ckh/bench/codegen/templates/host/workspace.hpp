// Hands out pieces of the caller's workspace. With no memory behind it, it only counts, so that the size reported and
// the layout used come from the same code.
#pragma once

#include "simd.hpp"

namespace ckh {

class Workspace {
  public:
    explicit Workspace(void* memory) : base_(static_cast<char*>(memory)) {}

    template <class T>
    T* take(int64_t count) {
        char* piece = base_ + used_;
        used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return base_ ? reinterpret_cast<T*>(piece) : nullptr;
    }

    // Floats, with a vector's worth more behind them, so that whole vectors may be read at the end.
    float* floats(int64_t count) { return take<float>(count + kColumnsSlack); }

    int64_t used() const { return used_; }

  private:
    static constexpr int64_t kColumnsSlack = 128;
    char* base_;
    int64_t used_ = 0;
};

}  // namespace ckh
