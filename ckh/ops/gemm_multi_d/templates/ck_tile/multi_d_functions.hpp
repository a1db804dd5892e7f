// Functions of the epilogue that CK Tile does not have: sums with an activation, in float32.
#pragma once

#include "ck_tile/core.hpp"

namespace ckh {

struct Relu {
    CK_TILE_HOST_DEVICE float operator()(float x) const { return x > 0.f ? x : 0.f; }
};

struct Silu {
    CK_TILE_HOST_DEVICE float operator()(float x) const { return x / (1.f + ck_tile::exp(-x)); }
};

// The form with tanh, as x * sigmoid(2 y).
struct Gelu {
    CK_TILE_HOST_DEVICE float operator()(float x) const {
        constexpr float scale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
        const float twice = scale * (x + 0.044715f * x * x * x);
        return x / (1.f + ck_tile::exp(-twice));
    }
};

template <class Activation>
struct AddThen {
    static constexpr const char* name = "AddThen";

    template <class E, class C, class... Each>
    CK_TILE_HOST_DEVICE void operator()(E& e, const C& c, const Each&... ds) const {
        float sum = ck_tile::type_convert<float>(c);
        ((sum += ck_tile::type_convert<float>(ds)), ...);
        e = ck_tile::type_convert<E>(Activation{}(sum));
    }
};

}  // namespace ckh
