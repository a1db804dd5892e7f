"""The dispatcher of matrix instructions, whose notation changed in late 2025."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckh.bench.codegen.ck_tile import Headers, Interface, dispatcher_macro, transposing_warp_gemms, warp_gemms
from ckh.bench.devices.device import DeviceOptions
from ckh.ops.gemm_universal.kernel import parse_kernel_name
from ckh.schema import Status
from tests.real import built_with, compiles, interface_here

DISPATCHER = Path("ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp")
HALVES, BYTES = "ck_tile::half_t, ck_tile::half_t, float", "ck_tile::fp8_t, ck_tile::fp8_t, float"
OF_NOVEMBER = f"""
namespace impl {{
template<> struct WarpGemmDispatcher<float, float, float, 16, 16,  4, false> {{ using Type = A; }};
template<> struct WarpGemmDispatcher<{HALVES}, 32, 32, 16, false> {{ using Type = B<>; }};
template<> struct WarpGemmDispatcher<{HALVES}, 32, 32, 16, true> {{ using Type = C<>; }};
template<> struct WarpGemmDispatcher<{HALVES}, 32, 32, 16, false, false, false, WGAttrNumAccessEnum::Double> {{
template<> struct WarpGemmDispatcher<{BYTES}, 16, 16,  128, false> {{ using Type = D<>; }};
template<> struct WarpGemmDispatcher<{BYTES}, 16, 16,  128, false, false, false, WGAttrNumAccessEnum::Quad> {{
"""
OF_DECEMBER = """
namespace impl {
namespace warp_gemm_dispatcher {
template<> struct Dispatcher<float, float, float, 16, 16,  4, false> { using Type = A; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32, 16, false> { using Type = B<>; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32, 16,  true>  { using Type = C<>; };
template<> struct Dispatcher<half_t, half_t, float, 32, 32, 16, false, false, false, EDouble> {
template<WGAttrNumAccessEnum I> struct Dispatcher<fp8_t, fp8_t, float, 16, 16, 128, false, false, false, I> {
"""
FP16, FP8 = ("ck_tile::half_t", (32, 32, 16)), ("ck_tile::fp8_t", (16, 16, 128))
FP32 = "gemm_universal_fp32_rcr_compv3_default_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8"


def headers_of(text: str, folder: Path) -> Headers:
    """Headers with this dispatcher."""
    path = folder / DISPATCHER
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return Headers(folder, Interface.LATE_2025, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("text", "name", "fp8_accesses"),
    [(OF_NOVEMBER, "WarpGemmDispatcher", {1, 4}), (OF_DECEMBER, "warp_gemm_dispatcher::Dispatcher", {1, 2, 4})],
)
def test_every_form_of_the_dispatcher_is_parsed(text: str, name: str, fp8_accesses: set[int], tmp_path: Path) -> None:
    """Its name, its instructions, and a lane's number of LDS accesses; any number for a template on accesses."""
    headers = headers_of(text, tmp_path)
    assert dispatcher_macro(headers) == f"CKH_WARP_GEMM_DISPATCHER={name}"
    assert warp_gemms(headers) == {("float", (16, 16, 4)), FP16, FP8}
    transposing = transposing_warp_gemms(headers)
    assert {accesses for *item, accesses in transposing if tuple(item) == FP16} == {1, 2}
    assert {accesses for *item, accesses in transposing if tuple(item) == FP8} == fp8_accesses


@pytest.mark.slow
@compiles()
def test_fp32_compiles_with_a_namespaced_dispatcher(tmp_path: Path) -> None:
    """With the dispatcher of late 2025, ckh's instructions are still added to it."""
    if interface_here() is not Interface.LATE_2025:
        pytest.skip("the headers are not of late 2025")
    shutil.copytree(Path(os.environ["CK_TILE_INCLUDE"]) / "ck_tile", tmp_path / "ck_tile")
    file = tmp_path / DISPATCHER
    text = file.read_text()
    if "namespace warp_gemm_dispatcher" not in text:
        for old, new in (
            ("namespace impl {", "namespace impl { namespace warp_gemm_dispatcher {"),
            ("} // namespace impl", "} }"),
            ("typename impl::WarpGemmDispatcher<", "typename impl::warp_gemm_dispatcher::Dispatcher<"),
            ("struct WarpGemmDispatcher", "struct Dispatcher"),
        ):
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
    kernel = parse_kernel_name(FP32)
    report = built_with(DeviceOptions("gfx942", ck_include=str(tmp_path)), [kernel])[kernel]
    assert (report.status, report.message) == (Status.OK, "")
