"""AMD's kernel lists as registries: reading, refusals, and writing.

The files in tests/fixtures/amd_lists are AMD's, MIT; the README there states their source.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.registry import read_registry
from ckh.cli import run
from ckh.errors import DataError, ExitCode, UsageError
from ckh.kernels.lists import ListFormat
from ckh.ops import operation, part_of
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.grouped_conv.kernel import kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from tests.refusals import expect_error, expect_refusal, expect_warning

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

AMD = Path(__file__).parents[1] / "fixtures" / "amd_lists"
CONV, GEMM = operation("grouped_conv"), operation("gemm_universal")
# A configuration of the tile engine's grouped convolutions.
FORWARD = {
    "variant": "forward",
    "trait_config": {
        "data_type": {"values": ["bf16"]},
        "pipeline": {"values": ["compv3", "compv4", "mem"]},
        "scheduler": {"values": ["intrawave", "interwave"]},
        "ndim_spatial": {"values": [2]},
        "num_groups_to_merge": {"values": [1, 2]},
        "double_smem_buffer": {"values": [False, True]},
    },
}


def registry(**changes: Any) -> dict[str, Any]:
    """A registry as written by the dispatcher's `GroupedConvRegistry.to_json`, with changes of its second kernel."""
    kernels: list[dict[str, Any]] = [
        {
            "name": f"grouped_conv_forward_bf16_2d_{tile}x64x64_compv4_intrawave_dsb",
            "signature": {"variant": "forward", "dtype": "bf16", "ndim_spatial": 2, "layout": "nhwgc"},
            "algorithm": {
                "tile_m": tile,
                "tile_n": 64,
                "tile_k": 64,
                "wave": "2x2x1",
                "warp": "16x16x16",
                "pipeline": "compv4",
                "epilogue": "cshuffle",
                "scheduler": "intrawave",
                "vector_sizes": [4, 8, 8],
                "block_per_cu": 1,
                "num_wave_groups": 1,
                "num_groups_to_merge": 1,
            },
            "arch": "gfx950",
        }
        for tile in (32, 64)
    ]
    for name, value in changes.items():
        part = next(part for part in (kernels[1], kernels[1]["signature"], kernels[1]["algorithm"]) if name in part)
        part[name] = value
    return {"name": "default", "kernels": kernels}


def written(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_a_dispatcher_registry_is_read(tmp_path: Path) -> None:
    """Fields are the kernel's, and its name has those that they omit: here the double buffer."""
    result = read_registry(written(tmp_path / "a.json", registry()), CONV)
    assert result.arch == "gfx950"
    assert [kernel_name(kernel) for kernel in result.kernels] == [
        f"grouped_conv_fwd_bf16_nhwgc_2d_compv4_cshuffle_intrawave_{tile}x64x64_2x2x1_16x16x16_dsb" for tile in (32, 64)
    ]


def test_a_dispatcher_registry_in_cpp_is_read(tmp_path: Path) -> None:
    """Its signature has the element type of each tensor and the direction as `op`."""
    document = registry()
    for item in document["kernels"]:
        item["signature"] = {
            **{f"dtype_{tensor}": "bf16" for tensor in ("in", "wei", "out")},
            "layout": "nhwgc",
            "ndim_spatial": 2,
            "op": "bwd_data",
        }
    result = read_registry(written(tmp_path / "a.json", {"metadata": {}, **document}), CONV)
    assert {kernel.variant for kernel in result.kernels} == {Direction.BWD_DATA}


def test_instances_of_the_code_generator_are_read() -> None:
    """All six kernels of AMD's file, field by field, for any GPU."""
    path = AMD / "forward_nhwgc_bf16.json"
    result = read_registry(path, CONV)
    assert result.arch == ""
    instances = json.loads(path.read_text())["instances"]
    assert len(result.kernels) == len(instances) == 6
    for kernel, instance in zip(result.kernels, instances, strict=True):
        assert (kernel.tile_m, kernel.tile_n, kernel.tile_k) == (
            instance["tile_m"],
            instance["tile_n"],
            instance["tile_k"],
        )
        assert (kernel.wave_m, kernel.wave_n, kernel.wave_k) == (
            instance["warp_m"],
            instance["warp_n"],
            instance["warp_k"],
        )
        assert (kernel.vector_a, kernel.vector_b, kernel.vector_c) == tuple(instance[f"vector_size_{x}"] for x in "abc")
        assert (kernel.specialization, kernel.split_image) == (instance["specialization"], instance["split_image"])
        assert kernel.num_groups_to_merge == instance["num_groups_to_merge"]
        assert str(kernel.scheduler) == instance["scheduler"]


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "fp16"), ("gfx950", "fp8")])
def test_the_default_configuration_of_gemms_is_its_product(arch: str, dtype: str) -> None:
    """The kernels are those of 622,080 combinations that break no rule, evaluated one by one here."""
    path = AMD / "gemm_default_config.json"
    spec = load_arch(arch)
    described = read_registry(path, GEMM).product
    assert described is not None
    assert described.count == 4**3 * 3**2 * (3 * 3 * 5) * (3 * 2 * 2 * 2) == 622_080
    document = json.loads(path.read_text())
    warp_tiles = [tuple(document["tile_config"][f"warp_tile_{axis}"]["values"]) for axis in "mnk"]
    table = described.table(spec, dtype, "rcr")
    built = table.take(GEMM_RULES.judge(table, spec).passed)
    known = {kernel for kernel in built if kernel.tile == (128, 128, 64) and kernel.pipeline == "compv3"}
    assert known
    some = next(iter(known))
    expected = set()
    for wave in product((4, 2, 1), (4, 2, 1)):
        for warp_tile in product(*warp_tiles):
            for scheduler, epilogue, persistent in product(
                ("intrawave", "interwave"), ("cshuffle", "default"), (False, True)
            ):
                kernel = replace(
                    some,
                    wave_m=wave[0],
                    wave_n=wave[1],
                    epilogue=epilogue,
                    persistent=persistent,
                    **{f"warp_tile_{axis}": size for axis, size in zip("mnk", warp_tile, strict=True)},
                    scheduler=type(some.scheduler)(scheduler),
                )
                if not GEMM_RULES.of_arch(kernel, spec):
                    expected.add(kernel)
    assert known == expected


def test_a_configuration_of_convolutions_is_part_of_the_pool(tmp_path: Path) -> None:
    """Without merged groups these are the pool's kernels with such pipelines and without split images."""
    arch = load_arch("gfx950")
    result = read_registry(written(tmp_path / "a.json", FORWARD), CONV)
    assert result.product is not None
    assert result.product.count == 10 * 3 * 2 * 2 * 2
    built = result.product.built(arch, "bf16")
    pool = conv_pool(Direction.FORWARD, arch, 2, "bf16")
    wanted = {kernel for kernel in pool if kernel.pipeline in ("compv3", "compv4", "mem") and not kernel.split_image}
    assert {kernel for kernel in built if kernel.num_groups_to_merge == 1} == wanted
    assert {kernel.num_groups_to_merge for kernel in built} == {1, 2}
    assert result.product.built(arch, "fp16") == ()


@pytest.mark.parametrize("kind", ["list", "configuration"])
def test_predict_ranks_such_lists(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All ranked kernels are from the file."""
    document = registry() if kind == "list" else FORWARD
    path = written(tmp_path / "a.json", document)
    known = {kernel_name(item) for item in read_registry(path, CONV).built(load_arch("gfx950"), "bf16")}
    sizes = ["--n", "16", "--c", "256", "--hi", "14", "--arch", "gfx950", "--dtype", "bf16"]
    assert run(["predict", *sizes, "--kernels", str(path), "--json", "--top", "500"]) == ExitCode.OK
    ranked = {load["kernel"] for load in json.loads(capsys.readouterr().out)["kernels"]}
    assert ranked
    assert ranked <= known


def test_bench_plans_the_kernels_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only kernel of AMD's `user_provided_config.json`, and the number of unsupported combinations."""
    (tmp_path / "p.csv").write_text("m,n,k\n64,192,256\n")
    path = AMD / "gemm_user_provided_config.json"
    command = ["bench", "--op", "gemm_universal", "--device", "hip", "--arch", "gfx942", "--dtype", "fp16", "--dry-run"]
    assert run([*command, "--problems", str(tmp_path / "p.csv"), "--registry", str(path), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["kernels"] == document["pairs"] == 1
    assert [(item["kernels"], item["refused"]) for item in document["groups"]] == [(1, 0)]


def change(document: dict[str, Any], **values: Any) -> dict[str, Any]:
    return document | {"trait_config": document["trait_config"] | values}


@pytest.mark.parametrize(
    ("op", "document", "why"),
    [
        (CONV, {"name": "a", "kernels": []}, "kernels must be a list of at least one kernel"),
        (CONV, registry(dtype="fp16"), "kernels[1] is fp16, the first kernel bf16"),
        (CONV, registry(arch="gfx942"), "kernels[1].arch is gfx942, the first kernel's is gfx950"),
        (
            CONV,
            change(FORWARD, pipeline={"values": ["compv9"]}),
            "has the unknown value 'compv9'",
        ),
        (CONV, change(FORWARD, cluster={"values": [1]}), "trait_config.cluster is not a known field"),
        (CONV, change(FORWARD, pipeline={"values": []}), "trait_config.pipeline must be a list of values"),
        (CONV, json.loads((AMD / "gemm_default_config.json").read_text()), "tile_config is a GEMM's"),
        (GEMM, registry(), "kernels[0]: identifier is missing: it is not a kernel of a GEMM"),
        (GEMM, FORWARD, "variant is a convolution's"),
    ],
)
def test_errors_are_one_line(op: Any, document: Any, why: str, tmp_path: Path) -> None:
    """Unknown values, empty lists, kernels of another operation, several element types or GPUs."""
    path = written(tmp_path / "a.json", document)
    with pytest.raises(DataError) as error:
        read_registry(path, op)
    assert error.value.message.startswith(f"{path}: ")
    assert why in error.value.message


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (registry(dtype="fp12"), "signature.dtype is"),
        (registry(pipeline="compv99x"), "algorithm has an invalid value"),
        (registry(wave="2x2"), "algorithm.wave must be three sizes such as 2x2x1"),
        (registry(signature={"dtype_a": "fp16"}), "signature has no direction"),
    ],
)
def test_entries_that_cannot_be_read_are_left_out(
    document: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are counted and named, and the first of the two kernels is read."""
    path = written(tmp_path / "a.json", document)
    assert [kernel.tile_m for kernel in read_registry(path, CONV).kernels] == [32]
    expect_warning(capsys.readouterr().err, "left-out", 1, why, "kernels[1]")


def instances(*entries: dict[str, Any]) -> dict[str, Any]:
    """A list of the code generator with the required fields of each instance, and changes."""
    plain = {
        **{f"tile_{axis}": size for axis, size in zip("mnk", (64, 64, 32), strict=True)},
        **{f"warp_{axis}": size for axis, size in zip("mnk", (2, 2, 1), strict=True)},
        **{f"warp_tile_{axis}": size for axis, size in zip("mnk", (32, 32, 8), strict=True)},
        **{f"vector_size_{operand}": 8 for operand in "abc"},
        "pipeline": "compv3",
        "scheduler": "intrawave",
        "epilogue": "cshuffle",
    }
    listed = [entry if "kind" in entry else plain | entry for entry in entries]
    return {"variant": "bwd_data", "ndim_spatial": 2, "layout": "nhwgc", "datatype": "bf16", "instances": listed}


def test_absent_fields_of_instances_have_the_defaults_of_amds_loader(tmp_path: Path) -> None:
    """Written out they give the same kernel, and stream-K without a strategy adds along a tree."""
    stated = {
        **dict.fromkeys(("double_smem_buffer", "split_image", "explicit_gemm", "two_stage", "streamk_enabled"), False),
        "num_groups_to_merge": 1,
        "num_wave_groups": 1,
        "specialization": "default",
        "streamk_persistent": False,
        "streamk_reduction_strategy": None,
    }
    plain, full, streamed, named = (
        read_registry(written(tmp_path / "a.json", instances(entry)), CONV).kernels
        for entry in (
            *({}, stated, {"streamk_enabled": True}),
            {"streamk_enabled": True, "streamk_reduction_strategy": "TREE"},
        )
    )
    assert plain == full
    assert (plain[0].streamk, streamed[0].streamk) == (None, "tree")
    assert streamed == named


def test_two_words_of_a_pipeline_are_one(tmp_path: Path) -> None:
    """AMD's code generator emits compv1 as basic_v1 and compv2 as basic_v2, so equal kernels are listed once."""
    names = ("compv1", "basic_v1", "compv2", "mem")
    path = written(tmp_path / "a.json", instances(*({"pipeline": name} for name in names)))
    assert [kernel.pipeline for kernel in read_registry(path, CONV).kernels] == ["basic_v1", "basic_v2", "mem"]


def test_direct_convolutions_are_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels of another kind have other fields; a list of nothing else is an error."""
    direct = {"id": 37, "kind": "direct_conv", "channel_family": 4, "impl": "tile_grouped", "config": {"waves_q4": 2}}
    path = written(tmp_path / "a.json", instances(direct, {}, direct))
    assert len(read_registry(path, CONV).kernels) == 1
    expect_warning(capsys.readouterr().err, "left-out", 2, "direct_conv", "instances[0]")
    with expect_refusal(DataError, "bad-field", "instances[0]", "direct_conv"):
        read_registry(written(tmp_path / "a.json", instances(direct, direct)), CONV)
    depthwise = instances({}) | {"variant": "forward_depthwise"}
    with expect_refusal(DataError, "bad-field", "variant", "forward_depthwise"):
        read_registry(written(tmp_path / "a.json", depthwise), CONV)


SIZES = "--n 16 --c 256 --hi 14 --variant bwd_data"
COMMANDS = {
    "predict": f"predict {SIZES} --kernels {{list}}",
    "predict of several": "predict --problems {problems} --kernels {list}",
    "bench": "bench --variant bwd_data --problems {problems} --device hip --registry {list} --dry-run",
    "export": "export --to amd-registry --registry {list} --out {out}",
}


@pytest.mark.parametrize("kind", ["instances", "registry"])
@pytest.mark.parametrize("command", COMMANDS)
def test_refused_entries_are_left_out_everywhere(
    command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command names and counts them in its JSON, and uses the others."""
    direct = {"kind": "direct_conv", "id": 9, "impl": "tile_grouped"}
    document = instances({}, direct, {"pipeline": "compv1"}, direct)
    if kind == "registry":
        document = registry(variant="bwd_data", scheduler="sideways")
        document["kernels"][0]["signature"]["variant"] = "bwd_data"
    path = written(tmp_path / "list.json", document)
    row = "bwd_data,16,256,256,14,14,3,3,1,1"
    (tmp_path / "p.csv").write_text(f"variant,N,C,K,Hi,Wi,Y,X,pad_h,pad_w\n{row}\n", encoding="utf-8")
    typed = COMMANDS[command].format(list=path, problems=tmp_path / "p.csv", out=tmp_path / "out")
    if command == "export":
        typed += " --op grouped_conv"
    assert run([*typed.split(), "--arch", "gfx950", "--dtype", "bf16", "--json"]) == ExitCode.OK
    output = json.loads(capsys.readouterr().out)
    ((reason, count),) = output["left_out"].items()
    assert (count, "list.json" in reason) == ((2, True) if kind == "instances" else (1, True))
    answers = output["results"][0] if "results" in output else output
    used = answers["kernels"]
    assert (used if isinstance(used, int) else len(used)) == (2 if kind == "instances" else 1)


def test_lists_of_other_operations_and_commands_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of GEMMs with further tensors ckh reads none; a JSON file is not one of kernels' names."""
    path = written(tmp_path / "list.json", parity())
    with expect_refusal(DataError, "unsupported", path, "gemm_multi_d"):
        read_registry(path, operation("gemm_multi_d"))
    (tmp_path / "p.csv").write_text("m,n,k\n64,192,256\n")
    command = ["bench", "--op", "gemm_universal", "--device", "hip", "--arch", "gfx942", "--dtype", "fp16", "--dry-run"]
    assert run([*command, "--problems", str(tmp_path / "p.csv"), "--kernels", str(path)]) == ExitCode.USAGE
    error = capsys.readouterr().err
    expect_error(error, "unknown-kernel", path, "--registry")
    assert max(map(len, error.splitlines())) < len(str(path)) + 150


def test_comments_and_types_of_operands_are_read(tmp_path: Path) -> None:
    """As in the configurations beside the dispatcher's code generator, which omit `persistent`."""
    document = parity(comment="minimal", gpu_targets=["gfx942"], datatype={"a": "fp16", "b": "fp16", "acc": "fp32"})
    del document["trait_config"]["persistent"], document["split_k"]
    (kernel,) = read_registry(written(tmp_path / "a.json", document), GEMM).built(load_arch("gfx942"), "fp16")
    assert (kernel.dtype, kernel.persistent) == ("fp16", False)
    with expect_refusal(DataError, "bad-field", "datatype"):
        read_registry(written(tmp_path / "a.json", parity(datatype={"a": "fp16", "b": "fp8"})), GEMM)


INSTANCE = (
    "GroupedConvolution{}Kernel<2,{},NHWGC,GKYXC,EmptyTuple,NHWGK,8,8,{},1,0,0,64,64,64,2,2,1,16,16,16,bf16,bf16,{},"
    "Intrawave,{},1,fp32,bf16,EmptyTuple,PassThrough{}>"
)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("Forward", "Filter1x1Pad0", 8, "COMPUTE_V4", 1, ""), "fwd_{}_dsb_filter1x1_pad0"),
        (("BackwardData", "Default", 8, "MEMORY", 0, ""), "bwd_data_{}_bpc2"),
        (("BackwardWeight", "Default", 8, "BASIC_ASYNC_V1", 0, ",1,2,0"), "bwd_weight_{}_bpc2_streamk_tree"),
        # Single 16-bit stores cannot add atomically: AMD's generator has a second stage for them.
        (("BackwardWeight", "Default", 1, "BASIC_V1", 0, ",0,0,0"), "bwd_weight_{}_bpc2_2stage"),
    ],
)
def test_texts_of_instances_are_names(parts: tuple[object, ...], name: str) -> None:
    """As in AMD's lists of instances (`.conf`), and as ckProfiler prints them."""
    pipelines = {"COMPUTE_V4": "compv4", "MEMORY": "mem", "BASIC_ASYNC_V1": "basic_async_v1", "BASIC_V1": "basic_v1"}
    shape = f"bf16_nhwgc_2d_{pipelines[str(parts[3])]}_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec8_8_{parts[2]}"
    text = INSTANCE.format(*parts)
    assert kernel_name(parse_kernel_name(text)) == "grouped_conv_" + name.format(shape)
    for wrong in (
        text.replace("PassThrough", "Relu"),
        text.replace("bf16,bf16,", "bf16,fp16,"),
        text.replace("64,64", "0,64"),
    ):
        with expect_refusal(DataError, "bad-kernel"):
            parse_kernel_name(wrong)


def test_compv4_has_the_double_buffer_that_a_registry_drops(tmp_path: Path) -> None:
    """The dispatcher's `to_json` omits it, also from names; without it the kernel could not be built."""
    document = registry()
    for entry in document["kernels"]:
        entry["name"] = entry["name"].removesuffix("_dsb")
    assert all(
        kernel.double_smem_buffer for kernel in read_registry(written(tmp_path / "a.json", document), CONV).kernels
    )


def test_predict_ranks_what_the_architecture_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """gfx942 does not load asynchronously from global memory to LDS: that kernel is refused, the other ranked."""
    path = written(tmp_path / "a.json", instances({}, {"pipeline": "basic_async_v1"}))
    sizes = ["--n", "16", "--c", "256", "--hi", "14", "--variant", "bwd_data", "--arch", "gfx942", "--dtype", "bf16"]
    assert run(["predict", *sizes, "--kernels", str(path), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert ["compv3" in entry["kernel"] for entry in document["kernels"]] == [True]
    ((reason, count),) = document["refused"].items()
    assert ("basic_async_v1" in reason, count) == (True, 1)


BUILT = ("basic_v1", "mem", "compv3", "compv4", "compv6", "comp_async", "basic_async_v1")


def test_the_configuration_of_forward_convolutions_is_read(tmp_path: Path) -> None:
    """AMD's `forward_2d.json` names pipelines beyond the six of its feature engine; its 1,280 kernels are known."""
    document = change(
        FORWARD,
        pipeline={
            "values": [*["basic_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async", "basic_async_v1"]]
        },
        **{name: {"values": [False]} for name in ("explicit_gemm", "two_stage")},
        split_image={"values": [False, True]},
    )
    product_of = read_registry(written(tmp_path / "a.json", document), CONV).product
    assert product_of is not None
    assert product_of.count == 10 * 8 * 2 * 2 * 2 * 2
    assert {kernel.pipeline for kernel in product_of.built(load_arch("gfx950"), "bf16")} == set(BUILT)


def parity(**changes: Any) -> dict[str, Any]:
    """A configuration of the dispatcher's parity tests: one kernel of a 256x128x32 tile."""
    sizes = {"tile": (256, 128, 32), "warp": (4, 1, 1), "warp_tile": (32, 32, 16)}
    traits = {"pipeline": "compv3", "epilogue": "default", "scheduler": "intrawave", "persistent": False}
    return {
        "_comment": "padding",
        "datatype": "fp16",
        "layout": "rcr",
        "gpu_target": "gfx942",
        "block_size": 256,
        "k_block_per_cu": 1,
        "num_wave_groups": 1,
        "split_k": 4,
        "tile_config": {
            f"{name}_{axis}": {"values": [size]}
            for name, triple in sizes.items()
            for axis, size in zip("mnk", triple, strict=True)
        },
        "trait_config": {name: {"values": [value]} for name, value in traits.items()}
        | {f"pad_{axis}": {"values": [True]} for axis in "mnk"},
        **changes,
    }


def test_a_parity_configuration_is_for_its_type_layout_and_gpu(tmp_path: Path) -> None:
    """It describes one kernel, for fp16 rcr on gfx942 alone."""
    result = read_registry(written(tmp_path / "a.json", parity()), GEMM)
    assert result.arch == "gfx942"
    assert result.product is not None
    arch = load_arch("gfx942")
    (kernel,) = result.built(arch, "fp16")
    assert (kernel.dtype, kernel.layout, kernel.epilogue, kernel.pad_k) == ("fp16", "rcr", "default", True)
    assert len(result.product.table(arch, "fp16", "rrr")) == 0
    with expect_refusal(UsageError, "mismatch", "fp16", "bf16"):
        result.built(arch, "bf16")
    with expect_refusal(DataError, "bad-field", "num_wave_groups"):
        read_registry(written(tmp_path / "a.json", parity(num_wave_groups=2)), GEMM)


@pytest.mark.parametrize("kind", ["without stream-K", "compv1", "parity"])
def test_predict_ranks_each_of_a_small_list(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instances without fields that AMD's loader adds or with its other words, and a configuration of one kernel."""
    document, options, pipelines = {
        "without stream-K": (instances({}), "--n 16 --c 256 --dtype bf16", ["compv3"]),
        "compv1": (instances({"pipeline": "compv1"}, {}), "--n 16 --c 256 --dtype bf16", ["basic_v1", "compv3"]),
        "parity": (parity(), "--m 256 --n 128 --k 56 --dtype fp16", ["compv3"]),
    }[kind]
    path = written(tmp_path / "a.json", document | ({"variant": "forward"} if "variant" in document else {}))
    assert run(["predict", *options.split(), "--arch", "gfx942", "--kernels", str(path), "--json"]) == ExitCode.OK
    parse: Any = (GEMM if kind == "parity" else CONV).kernels.parse
    ranked = [parse(entry["kernel"]) for entry in json.loads(capsys.readouterr().out)["kernels"]]
    assert sorted(kernel.pipeline for kernel in ranked) == pipelines


def test_a_configuration_of_too_many_kernels_is_refused(tmp_path: Path) -> None:
    """The product is not computed."""
    document = json.loads((AMD / "gemm_default_config.json").read_text())
    document["tile_config"]["tile_k"] = {"min": 1, "max": 512, "step": 1}
    with expect_refusal(DataError, "bad-field", "tile_config", "79626240", "2097152"):
        read_registry(written(tmp_path / "a.json", document), GEMM)


def lists_of(op: Any) -> Any:
    """AMD's list formats of an operation."""
    return part_of(op, op.kernels.lists, ListFormat)


def test_written_convolution_kernels_are_read_back(tmp_path: Path) -> None:
    """A registry lists exactly these kernels; the smallest configuration includes all, and its count is right."""
    arch = load_arch("gfx950")
    pool = conv_pool(Direction.FORWARD, arch, 2, "bf16")
    chosen: tuple[ConvKernel, ...] = (pool[3], pool[40], pool[-1])
    files = lists_of(CONV).write(chosen, arch, "mine")
    assert list(files) == ["registry_forward_2d_bf16.json", "config_forward_2d_bf16.json"]
    for name, made in files.items():
        (tmp_path / name).write_bytes(made.content)
    assert read_registry(tmp_path / "registry_forward_2d_bf16.json", CONV).kernels == chosen
    built = read_registry(tmp_path / "config_forward_2d_bf16.json", CONV).built(arch, "bf16")
    assert set(chosen) <= set(built)
    assert files["config_forward_2d_bf16.json"].kernels == len(built) < len(pool)


def test_written_gemm_kernels_are_read_back(tmp_path: Path) -> None:
    """Likewise; a configuration has no element type and layout."""
    arch = load_arch("gfx942")
    described = read_registry(AMD / "gemm_default_config.json", GEMM).product
    assert described is not None
    table = described.table(arch, "fp16", "rcr")
    built = table.take(GEMM_RULES.judge(table, arch).passed)
    chosen = (built[5], built[700], built[len(built) - 1])
    files = lists_of(GEMM).write(chosen, arch, "mine")
    for name, made in files.items():
        (tmp_path / name).write_bytes(made.content)
    assert read_registry(tmp_path / "registry_fp16_rcr.json", GEMM).kernels == chosen
    again = read_registry(tmp_path / "config_fp16_rcr.json", GEMM).product
    assert again is not None
    result = again.table(arch, "fp16", "rcr")
    passed = result.take(GEMM_RULES.judge(result, arch).passed)
    assert set(chosen) <= set(passed)
    assert files["config_fp16_rcr.json"].kernels == len(passed) < len(built)
