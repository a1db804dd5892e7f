"""Readers of untrusted files and text: samples of their inputs, and how to call them."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch, read_arch, read_common_rules
from ckh.bench.planning.plan import _parse_choice as parse_choice_of
from ckh.bench.planning.registry import read_registry
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import find_reader, read_input, readers
from ckh.export.groups import DTYPES
from ckh.isa.codefile import read_code
from ckh.kernels.filter import parse_filter
from ckh.kernels.pools import read_timed
from ckh.learn.answers.answer import interval_at
from ckh.learn.answers.known import find_known
from ckh.learn.models.calibration import read_calibration
from ckh.learn.models.manifest import labels_of, our_manifest, problem_count, trained_layers, trained_problems
from ckh.learn.models.measured_set import read_measured
from ckh.learn.models.spec import read_spec
from ckh.learn.training.warm_start import _params
from ckh.ops import operation
from ckh.ops.aiter_gemm.kernel import parse_kernel as parse_aiter_kernel
from ckh.ops.aiter_gemm.operation import load_problems as read_aiter_problems
from ckh.ops.aiter_gemm.problem import parse_aiter_gemm
from ckh.ops.aiter_gemm.tuned import read_tuned as read_gemm_tuned
from ckh.ops.aiter_moe.kernel import joint
from ckh.ops.aiter_moe.kernel import parse_choice as parse_moe_choice
from ckh.ops.aiter_moe.operation import load_problems as read_moe_problems
from ckh.ops.aiter_moe.problem import parse_aiter_moe
from ckh.ops.aiter_moe.tuned import read_tuned as read_moe_tuned
from ckh.ops.gemm_universal import kernel as gemm_names
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets.files import read_problems as read_gemm_problems
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool, learned_kernels
from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.ops.grouped_conv.problem_sets import read_problems as read_conv_problems
from ckh.problems import Direction
from ckh.ranking.forest_file import _build, read_packed
from ckh.ranking.layout import HEADER
from ckh.ranking.library import OpenModel
from tests.reliability import samples, targets_more
from tests.reliability.parquet import damaged_parquet, damaged_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.ops.gemm_universal.kernel import GemmKernel
    from tests.reliability.mutation import Mutator

    Reader = Callable[[bytes], object]

_SLOW = 0.25  # share of readers that take several milliseconds for an input


@dataclass(frozen=True, slots=True)
class Target:
    """A reader.

    Attributes:
        name: what it reads.
        samples: valid inputs.
        open: given a folder for files, returns a function that reads an input.
        make: makes a damaged input.
        share: share of the number of inputs in CI, for slow readers.
    """

    name: str
    samples: Callable[[], list[bytes]]
    open: Callable[[Path], Reader]
    make: Callable[[Mutator], bytes] = lambda mutator: mutator.next()
    share: float = 1.0


def _file(name: str, read: Callable[[Path], object]) -> Callable[[Path], Reader]:
    """A reader of a file of this name."""

    def opened(folder: Path) -> Reader:
        path = folder / name

        def reader(content: bytes) -> object:
            path.write_bytes(content)
            return read(path)

        return reader

    return opened


def _suffixed(read: Callable[[Path], object]) -> Callable[[Path], Reader]:
    """A reader of problem files, whose format is determined by the name."""

    def opened(folder: Path) -> Reader:
        def reader(content: bytes) -> object:
            head = content.lstrip()[:1]
            suffix = ".json" if head in (b"[", b"{") else ".csv" if b"," in content else ".txt"
            path = folder / f"problems{suffix}"
            path.write_bytes(content)
            return read(path)

        return reader

    return opened


def _data(name: str, file: str, arch: str | None = None, share: float = 1.0) -> Target:
    """A format of measurements: detected by its first bytes and read, with and without bad rows."""

    def read(path: Path) -> object:
        if path.stat().st_size:
            readers()[name].sniff(path.read_bytes()[:4096])
            skip = path.stat().st_size % 2 == 0
        else:
            find_reader(path)
            skip = False
        return readers()[name].read(path, ReadOptions(arch=arch, strict=skip, num_cus=None))

    return Target(name, getattr(samples, name.replace("-", "_")), _file(file, read), share=share)


def _text(read: Callable[[str], Any], again: Callable[[Any], str] | None = None) -> Callable[[Path], Reader]:
    """A reader of text; accepted input must equal the text of the result."""

    def reader(content: bytes) -> object:
        result = read(content.decode("utf-8", "replace"))
        if again is not None:
            assert read(again(result)) == result
        return result

    return lambda _folder: reader


_GPU_POOL = conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16")[::60]


def _filter(text: str) -> object:
    condition = parse_filter(text, ConvKernel)
    return [condition(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16")[::100]]


def _manifest(path: Path) -> object:
    folder = path.parent
    problem_count(folder)
    return trained_problems(folder), trained_layers(folder), labels_of(folder), our_manifest(folder)


def _measured(path: Path) -> object:
    """Inputs are the JSON, as a damaged archive is refused before it; the result is used."""
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    op = operation("grouped_conv")
    measured_set = read_measured(path.parent, map(str.lower, op.problems.sizes))
    problem = op.problems.parse("conv_forward_fp32_nhwgc_2d_n16_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1")
    limits = {} if measured_set is None else measured_set.limits_by_size
    return find_known(problem, "", lambda: measured_set, limits, [], []).document()


def _learned(path: Path) -> object:
    """The result is evaluated on a kernel of each pipeline."""
    kernels = learned_kernels(path.parent)
    assert kernels is not None
    return [(kernels.reason(kernel), kernels.new_kind(kernel)) for kernel in _GPU_POOL]


def _calibration(path: Path) -> object:
    calibration = read_calibration(path.parent)
    assert calibration is not None
    scores = np.array([9.0, 3.0, 1.0, 0.5, -4.0])
    return calibration.speeds(scores, scores + 10.0), interval_at(calibration.bands, 20.0), calibration.to_json()


def _timed(path: Path) -> object:
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    return read_timed(path, parse_kernel_name)


def _spec(path: Path) -> object:
    spec = read_spec(path.parent)
    return _params(path.parent), spec.engine.select(spec.feature_names), spec.purpose, spec.encoding


def _tuned(path: Path) -> object:
    return read_gemm_tuned(path, ReadOptions(strict=path.stat().st_size % 2 == 0))


def _aiter_problems(path: Path) -> object:
    return read_aiter_problems(str(path), None, None, "fp8")


def _moe_tuned(path: Path) -> object:
    return read_moe_tuned(path, ReadOptions())


def _moe_problems(path: Path) -> object:
    return read_moe_problems(str(path), None, None)


def _kernels(path: Path) -> object:
    return parse_choice_of(str(path), conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16"))


def _table(name: str, file: str, table: Callable[[], Any], share: float = 1.0) -> Target:
    """A format of measurements in Parquet that is not a dataset of ckh."""

    def read(path: Path) -> object:
        options = ReadOptions(strict=path.stat().st_size % 2 == 0)
        return readers()[name].read(path, options)

    return Target(name, lambda: [samples.as_parquet(table())], _file(file, read), damaged_table(table), share)


def _mapped(path: Path) -> object:
    maps = {"kernel": "kernel", "m": "M", "n": "N", "k": "K", "latency_us": "latency_ms"}
    options = ReadOptions("gfx942", path.stat().st_size % 2 == 0, op="gemm_universal", mapping=maps)
    return read_input(path, options)


def _prepared(path: Path) -> object:
    model = OpenModel(path)
    problem = parse_conv_problem(samples.PROBLEMS[0])
    key, sizes = (0, DTYPES.index("fp32"), 0, 2), list(problem.columns().values())
    return model.rank(key, sizes, 5), model.count_reasons(key, sizes, bytes(300), 1, 0)


def _damaged_answer(mutator: Mutator) -> bytes:
    """A damaged model file, mostly with a valid length and checksum, so that later checks are reached."""
    content = mutator.next()
    if len(content) < HEADER.size or mutator.random.random() < 0.2:
        return content
    magic, order, version, _, _, zero = HEADER.unpack(samples.prepared_answers()[0][: HEADER.size])
    body = content[HEADER.size :]
    return HEADER.pack(magic, order, version, len(content), zlib.crc32(body), zero) + body


def _arch(path: Path) -> object:
    return read_arch(path, load_arch("gfx942").common)


def _conv_name(kernel: ConvKernel) -> str:
    return kernel_name(kernel) if kernel.is_complete else amd_short_name(kernel)


def _gemm_name(kernel: GemmKernel) -> str:
    return gemm_names.kernel_name(kernel) if kernel.is_complete else gemm_names.short_name(kernel)


def _canonical(problem: Any) -> str:
    return str(problem.canonical())


def aiter_names() -> list[str]:
    """Names of kernels of AITER's quantised GEMMs."""
    return [str(name) for name in samples.aiter_table()["kernel"].unique().to_pylist()]


def moe_names() -> list[str]:
    """Names of kernels of mixtures of experts, and of a pair."""
    names = [str(name) for name in samples.moe_table()["kernel"].to_pylist()]
    return [*names, joint(*names[:2])]


def _conv_names() -> list[bytes]:
    return samples.lines(*samples.CONV_NAMES, *samples.SHORT_NAMES, *samples.FULL_NAMES)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _data("journal", "journal.jsonl", share=_SLOW),
        _data("amd-csv", "amd.csv", "gfx942", share=_SLOW),
        _data("tile-engine-json", "b.json", "gfx950"),
        _data("tile-engine-csv", "sweep.csv", "gfx942", share=_SLOW),
        _data("master-csv", "master_results.csv", "gfx950", share=_SLOW),
        _table("gemm-parquet", "gemm.parquet", samples.gemm_table, _SLOW),
        _table("amd-parquet", "conv.parquet", samples.conv_table, _SLOW),
        Target("mapped-csv", samples.tile_engine_csv, _file("mine.csv", _mapped), share=_SLOW),
        _data("bench-log", "gemm.log", "gfx950", share=_SLOW),
        _data("library-log", "tools.log", "gfx942", share=_SLOW),
        Target("aiter-tuned-csv", samples.aiter_csv, _file("a8w8_tuned_gemm.csv", _tuned)),
        Target("aiter-gemm-problem-files", samples.aiter_gemm_problem_files, _file("problems.txt", _aiter_problems)),
        Target(
            "aiter-untuned-csv",
            lambda: [b"M,N,K,q_dtype_w\n16,1280,8192,torch.int8\n"],
            _file("a8w8_untuned_gemm.csv", _aiter_problems),
        ),
        Target("aiter-moe-problem-files", samples.aiter_moe_problem_files, _file("problems.txt", _moe_problems)),
        Target("aiter-moe-csv", lambda: samples.aiter_moe_csv()[:2], _file("tuned_fmoe.csv", _moe_tuned)),
        Target("aiter-moe-untuned-csv", samples.aiter_moe_csv, _file("untuned_fmoe.csv", _moe_problems)),
        Target("kernel-lists", lambda: ["\n".join(samples.CONV_NAMES).encode()], _file("kernels.txt", _kernels)),
        Target("parquet", samples.parquet, _file("data.parquet", read_dataset), damaged_parquet, _SLOW),
        Target("conv-problem-files", samples.conv_problem_files, _suffixed(read_conv_problems)),
        Target("gemm-problem-files", samples.gemm_problem_files, _suffixed(read_gemm_problems)),
        Target(
            "registry",
            samples.registry,
            _file("kernels.json", lambda path: read_registry(path, operation("grouped_conv"))),
        ),
        Target("filter", samples.filters, _text(_filter)),
        Target("spec", samples.specs, _file("feature_spec.json", _spec)),
        Target("manifest", samples.manifests, _file("train_manifest.json", _manifest)),
        Target("measured", samples.measured, _file("measured.json.gz", _measured)),
        Target("learned-kernels", samples.learned, _file("kernels.json", _learned)),
        Target("calibration", samples.calibrations, _file("calibration.json", _calibration)),
        Target("timed-kernels", samples.timed, _file("timed_kernels.json.gz", _timed)),
        Target("lightgbm-text", samples.lightgbm_text, lambda _: lambda content: _build(content, "model")),
        Target("packed-forest", samples.packed_forest, _file("forest.bin", read_packed)),
        Target("prepared-answers", samples.prepared_answers, _file("answer.ckhm", _prepared), _damaged_answer),
        Target("arch", samples.archs, _file("gfx942.json", _arch)),
        Target("arch-common", samples.archs_common, _file("common.json", read_common_rules)),
        Target("conv-kernel-names", _conv_names, _text(parse_kernel_name, _conv_name)),
        Target("gemm-kernel-names", samples.gemm_names, _text(gemm_names.parse_kernel_name, _gemm_name)),
        Target("aiter-gemm-kernel-names", lambda: samples.lines(*aiter_names()), _text(parse_aiter_kernel)),
        Target("aiter-moe-kernel-names", lambda: samples.lines(*moe_names()), _text(parse_moe_choice)),
        Target("aiter-gemm-problems", lambda: samples.lines(*samples.AITER_GEMMS), _text(parse_aiter_gemm, _canonical)),
        Target("aiter-moe-problems", lambda: samples.lines(*samples.AITER_MOES), _text(parse_aiter_moe, _canonical)),
        Target(
            "map", lambda: [b"kernel=kernel\nm=M\nn=N\nk=K\nlatency_us=latency_ms"], targets_more.read_map, share=_SLOW
        ),
        Target("tune-settings", targets_more.tune_files, targets_more.read_tune_file),
        Target("tune-steps", targets_more.tune_steps, targets_more.read_steps),
        Target("aiter-export", targets_more.export_lists, targets_more.read_export),
        Target("aiter-own-tables", samples.aiter_csv, targets_more.read_own_tables),
        Target(
            "code-object",
            targets_more.code_objects,
            _file("k.co", lambda path: read_code(path, None)),
            targets_more.damaged_code,
            _SLOW,
        ),
        Target("conv-problems", lambda: samples.lines(*samples.PROBLEMS), _text(parse_conv_problem, _canonical)),
        Target("gemm-problems", lambda: samples.lines(*samples.GEMMS), _text(GemmProblem.parsed, _canonical)),
    )
}
