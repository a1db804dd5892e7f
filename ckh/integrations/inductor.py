"""PyTorch Inductor's instances of Composable Kernel and of CK Tile, best first.

Without this, Inductor compiles and times a seeded random sample of them (`config.rocm.ck_max_profiling_configs` and
`config.rocm.ck_tile_max_profiling_configs`). `choose` orders them by ckh's model of the GPU, or with a warning by the
nearest model or an estimate; `install` makes Inductor time the first of that order.

    from ckh.integrations import inductor
    inductor.install(top=8)
    torch.compile(model, mode="max-autotune")      # with "CK" or "CKTILE" in max_autotune_gemm_backends

Verified with the templates of PyTorch 2.13 (tests/integrations/test_inductor.py). Instances that differ only in what
ckh does not distinguish, such as padding, share a rank, so that the first few are different kernels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckh.archs import HOST, assumed_gpu, default_arch, typed_arch
from ckh.errors import CkhError, ModelError, UsageError
from ckh.export.consumers import all_of
from ckh.export.to_python import require_use
from ckh.learn.answers.answering import Chooser
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import load_model
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ckh.export.consumers import Instances
    from ckh.learn.models.artifact import Model


PROGRAM = "inductor"
_ROCM = "torch._inductor.codegen.rocm"
# Templates of Inductor: module, class, and the setting that limits the number of timed instances.
_TEMPLATES = (
    ("ck_tile_universal_gemm_template", "CKTileGemmTemplate", "ck_tile_max_profiling_configs"),
    ("ck_universal_gemm_template", "CKGemmTemplate", "ck_max_profiling_configs"),
    ("ck_conv_template", "CKGroupedConvFwdTemplate", "ck_max_profiling_configs"),
)
_SIZES = tuple(f"{name}_{axis}" for name in ("tile", "wave", "warp_tile") for axis in "mnk")
_MOST_SIZE = 1 << 20
_PASSED_OVER: list[str] = []  # reason why an instance was skipped, the first in this process
_SAID: set[tuple[str, Path]] = set()  # kinds of problems and models of printed warnings
# Fields other than scores in which kernels worth timing separately differ.
_SHAPE = ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "pipeline", "scheduler")
_PADS = ("pad_m", "pad_n", "pad_k")  # kernels that differ only in these are ties


def choose(
    template: Any,
    instances: Sequence[Any],
    *,
    top: int | None = None,
    arch: str | None = None,
    model: Path | str | None = None,
) -> list[Any]:
    """Order the instances of a template, best first."""
    return _ranked(template, list(instances), _architecture(arch), model)[:top]


def install(*, top: int | None = None, arch: str | None = None, model: Path | str | None = None) -> Callable[[], None]:
    """Make Inductor time the first instances in the order of `choose` instead of a random sample."""
    arch = _architecture(arch)
    require_use(PROGRAM, arch, None if model is None else load_model(model))
    undo: list[Callable[[], None]] = []
    for module, name, setting in _TEMPLATES:
        try:
            template = getattr(import_module(f"{_ROCM}.{module}"), name)
        except (ImportError, AttributeError) as error:
            _all(undo)
            raise UsageError(
                f"PyTorch has no {name}: {error}", "install a PyTorch 2.13, or a later one", code="not-installed"
            ) from error
        undo.append(_replace(template, setting, top, arch, model))
    return lambda: _all(undo)


def setting_of(template: Any) -> str:
    """Return the setting that limits the number of timed instances of a template."""
    return next(setting for _, name, setting in _TEMPLATES if name == type(template).__name__)


def _all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _replace(template: Any, setting: str, top: int | None, arch: str, model: Path | str | None) -> Callable[[], None]:
    drawn = template.gen_ops
    if hasattr(drawn, "ckh_replaced"):
        raise UsageError(
            "ckh's order is already installed in Inductor",
            "undo the first install before another",
            code="already-installed",
        )

    @wraps(drawn)
    def gen_ops(self: Any) -> Any:
        config: Any = import_module("torch._inductor.config")
        limit = top or getattr(config.rocm, setting)
        with config.patch({f"rocm.{setting}": None}):
            instances = drawn(self)
        try:
            return choose(self, instances, top=limit, arch=arch, model=model)
        except CkhError as error:
            _say_passed_over(error)
            return instances[:limit]

    gen_ops.ckh_replaced = True  # type: ignore[attr-defined]
    template.gen_ops = gen_ops
    return lambda: setattr(template, "gen_ops", drawn)


def _architecture(arch: str | None) -> str:
    if arch == HOST or (arch is None and assumed_gpu()):
        raise UsageError("no GPU on this machine", "name an architecture, e.g. arch='gfx942'", code="no-gpu")
    architecture = arch or default_arch()
    require_use(PROGRAM, architecture, None)
    return typed_arch(architecture)


def _ranked(template: Any, instances: Sequence[Any], arch: str, model: Path | str | None) -> list[Any]:
    groups: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for number, instance in enumerate(instances):
        placed = _placed(template, instance)
        if placed is not None:
            op, problem, kernel = placed
            groups[op, problem].append((number, kernel))
    places: dict[int, tuple[int, int]] = {}
    for (op, problem), members in groups.items():
        chooser = _chooser(op, arch, model)  # refuses a damaged model
        try:
            places |= _places(op, problem, members, chooser)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - an unexpected error must not abort the compilation of a model
            _say_passed_over(error)
    last = (len(instances), 0)
    order = sorted(range(len(instances)), key=lambda number: (*places.get(number, last), number))
    return [instances[number] for number in order]


def _placed(template: Any, instance: Any) -> tuple[str, Any, Any] | None:
    """Map an instance to operation, problem and kernel; None if there is none."""
    for op, part in all_of("instances"):
        if part.name != PROGRAM:
            continue
        if (pair := _understood(part, template, instance)) is not None:
            return op.name, *pair
    return None


def _understood(part: Instances, template: Any, instance: Any) -> tuple[Any, Any] | None:
    """Map an instance to the problem and kernel of an operation, if it has them."""
    try:
        problem = part.problem(template, instance)
        kernel = None if problem is None else part.kernel(template, instance)
        if kernel is not None:
            _require_sizes(kernel)
            hash((problem, kernel))
    except Exception as error:  # noqa: BLE001 - an unexpected instance must not abort the compilation of a model
        _say_passed_over(error)
        return None
    return None if kernel is None else (problem, kernel)


def _require_sizes(kernel: Any) -> None:
    """Refuse a kernel with an impossible size."""
    for name in _SIZES:
        size = getattr(kernel, name)
        if type(size) is not int or not 0 < size <= _MOST_SIZE:
            raise ValueError(f"{name} is {size!r:.40}")


def _places(op: str, problem: Any, members: Sequence[tuple[int, Any]], chooser: Chooser) -> dict[int, tuple[int, int]]:
    """Instance index -> (rank, rank within ties), from 0."""
    try:
        chosen = chooser.model(problem, stands_in=True)
    except UsageError:  # the named model is for something else
        return {}
    _warn_unmeasured(f"{op} {problem.dtype} on {chooser.arch}", problem, chosen)
    kernels = tuple(sorted({kernel for _, kernel in members}))
    scores, _ = chosen.score_pool([problem], kernels, tflops=False)
    score: dict[Any, float] = {}
    for kernel, own in zip(map(unpadded, kernels), scores[0].tolist(), strict=True):
        score[kernel] = max(own, score.get(kernel, own))
    alike: dict[tuple[float, tuple[Any, ...]], list[tuple[Any, int]]] = defaultdict(list)
    for number, kernel in members:
        shape = tuple(getattr(kernel, name) for name in _SHAPE)
        alike[-score[unpadded(kernel)], shape].append((kernel, number))
    return {
        number: (among, place)
        for place, key in enumerate(sorted(alike))
        for among, (_, number) in enumerate(sorted(alike[key]))
    }


def unpadded(kernel: Any) -> Any:
    """Return the kernel without padding, which the order does not distinguish."""
    pads = {name: False for name in _PADS if hasattr(kernel, name)}
    return replace(kernel, **pads) if pads else kernel


def _say_passed_over(error: Exception) -> None:
    """Warn once per process: a template may have thousands of such instances."""
    if _PASSED_OVER:
        return
    try:
        reason = error.message if isinstance(error, CkhError) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error whose text is not available
        reason = type(error).__name__
    _PASSED_OVER.append(reason)
    warn(f"{PROGRAM}: instances that ckh cannot rank keep Inductor's order: {reason}", "unranked")


@cache
def _chooser(op: str, arch: str, path: Path | str | None) -> Chooser:
    return Chooser(path, arch, None, op)


def _warn_unmeasured(what: str, problem: Any, model: Model) -> None:
    """Warn if the answer to a problem is not measured, once per process for each kind of problems and model."""
    if (what, model.path) in _SAID:
        return
    ranking = rankings_of([problem], model)[0]
    if ranking.failure:  # predict refuses the problem, and has no caveats on it
        return
    _SAID.add((what, model.path))
    for caveat in ranking.answer(1, "").caveats:
        if caveat.kind == "not-measured":
            lines = (" ".join(line.split()) for line in caveat.message.splitlines())
            warn(f"{PROGRAM}: the order of {what}: {'; '.join(lines)}", "not-measured")
