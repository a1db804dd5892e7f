"""The rows that models are evaluated on: selection of problems and data, and refusals."""

from __future__ import annotations

import shlex
import zlib
from typing import TYPE_CHECKING

from ckh.errors import DataError, UsageError
from ckh.strenum import StrEnum
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ckh.assess.ranked_rows import Ranker
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import ModelSpec
    from ckh.ops.base import Problem


class Among(StrEnum):
    """Kernels to choose among."""

    CANDIDATES = "candidates"
    MEASURED = "measured"


LEAST_PROBLEMS = 10  # minimum number of problems for a meaningful 10th percentile
LEAST_COVERAGE = 0.8  # share of choices that were measured: figures of fewer are of other choices than predict's
MOST_UNSTABLE = 0.2  # share of times: above this, the machine was loaded


def judged_model(path: Path | None, data: Sequence[Path]) -> Model:
    """Return the named model, or the model that predict selects for the data; prints a substitute."""
    from ckh.data.parts import read_parts
    from ckh.learn.judging.judged_answers import answering_model
    from ckh.learn.models.artifact import load_model

    if path is not None:
        return load_model(path)
    problems: list[Problem] = []
    archs: set[str] = set()
    sizes: set[int] = set()
    for part in read_parts(*data, columns=lambda _op: frozenset({"hw_num_cus"})):
        problems += part.problems()
        archs.update(part.archs)
        sizes.add(part.num_cus)
    if len(archs) > 1:
        raise UsageError(
            f"the data have {len(archs)} architectures, {', '.join(sorted(archs))}", "add --model", code="mixed-data"
        )
    model = answering_model(problems, archs.pop(), sizes.pop() if len(sizes) == 1 else 0)
    if model.not_measured is None:
        note(f"evaluating {model.path}, which predict selects for these problems")
    else:
        warn(f"no model for these problems: evaluating {model.not_measured.source}", "no-model")
    return model


def ranker_of(model: Model, among: Among) -> Ranker:
    """Return a function that ranks a dataset's rows by the model's answers."""
    from ckh.learn.judging.judged_answers import judged_rows

    return lambda part: judged_rows(model, part, measured_alone=among is Among.MEASURED)[0]


def load_judged(model: Model, paths: Sequence[Path], also: Iterable[str] = ()) -> DatasetParts:
    """Load the rows of a model's problems with an oracle or winner, also with other columns; warns of rows left out."""
    from ckh.assess.times import has_oracle, needed_columns, no_oracle
    from ckh.data.parts import read_parts
    from ckh.schema import Status

    spec = model.spec
    parts, masks, rows, wanted = read_parts(*paths, columns=lambda op: needed_columns(op).union(also)), [], 0, 0
    variants: set[str] = set()
    archs: set[str] = set()
    for part in parts:
        is_for = _is_for(part, spec)
        is_chosen = (part.frame["status"] == Status.CHOSEN) & won([part], model)[part.problem_ids]
        masks.append(is_for & (has_oracle(part)[part.problem_ids] | is_chosen.to_numpy(dtype=bool)))
        rows, wanted = rows + len(part), wanted + int(is_for.sum())
        variants.update(part.variants)
        archs.update(part.archs)
    if not wanted:
        have = " ".join(filter(None, (parts.op.name, ", ".join(sorted(variants)), "on", ", ".join(sorted(archs)))))
        raise DataError(f"no row for {model.path} ({spec.purpose}): the data are {have}", code="model-mismatch")
    if wanted < rows:
        warn(f"left out {rows - wanted} rows that are not {spec.purpose}", "left-out")
    if not any(mask.any() for mask in masks):
        raise no_oracle()
    return parts.select(masks)


def files_learned_from(model: Model, named: Sequence[Path], data: Sequence[Path]) -> list[Path]:
    """Training files of baselines: the named files, or those of the model, if found.

    Searched beside the model, beside the data, and in `data` of a checkout.
    """
    from ckh.learn.models.manifest import training_files

    if named or model.not_measured is not None:
        return list(named)
    folder = model.path.resolve().parent
    files = list(training_files(model.path, [folder, folder.parent / "data", *(path.parent for path in data)]))
    if files:
        note(f"baselines are trained on the model's training data, {', '.join(map(str, files))}")
    return files


def _is_for(dataset: Dataset, spec: ModelSpec) -> NDArray[np.bool_]:
    """Mask of the rows within the scope of a model, shape (rows,); whole problems."""
    from ckh.learn.models.spec import ANY

    frame = dataset.frame
    mask = (frame["arch"] == spec.arch) & (frame["op_type"] == spec.op_type)
    if spec.dtype != ANY:
        mask = mask & (frame["dtype"] == spec.dtype)
    if spec.variant is not None and dataset.op.has_directions:
        mask = mask & (frame["variant"] == str(spec.variant))
    rows: NDArray[np.bool_] = mask.to_numpy(dtype=bool)
    return rows


def held_out(parts: DatasetParts, models: Sequence[Model], *, with_trained: bool = False) -> DatasetParts:
    """Rows of problems that no model was trained on; warns of those left out."""
    is_new = ~_is_seen(parts, models, with_trained=with_trained)
    if not is_new.any():
        raise DataError(
            f"{models[0].path} was trained on all {len(is_new)} problems of these data; evaluate on new ones",
            "use held-out problems, or add --with-trained",
            code="trained-on-all",
        )
    return parts.select_problems(is_new)


def won(parts: Iterable[Dataset], model: Model) -> NDArray[np.bool_]:
    """Mask of problems with winners alone, if others tune the operation or the model is of winners; (problems,)."""
    import numpy as np

    from ckh.learn.models.manifest import labels_of
    from ckh.training import Labels

    has_winners = bool(model.spec.op.apart) or (not model.is_estimate and labels_of(model.path) is Labels.WINNERS)
    return np.concatenate([part.is_won for part in parts]) & has_winners


def for_verdict(
    parts: DatasetParts, models: Sequence[Model], least: int, *, with_trained: bool = False, with_won: bool = False
) -> DatasetParts:
    """Rows for a verdict: problems with several kernels, or `with_won` of winners; no training problems of the models.

    Warns of excluded problems, and of models whose manifest does not state their training problems.
    """
    import numpy as np

    is_left = np.concatenate([np.bincount(part.problem_ids) > 1 for part in parts])
    is_left |= with_won & won(parts, models[0])
    if not is_left.all():
        warn(f"left out {int((~is_left).sum())} problems with a single measured kernel", "single-kernel")
    is_left &= ~_is_seen(parts, models, with_trained=with_trained)
    if int(is_left.sum()) < least:
        raise DataError(
            f"no verdict: {int(is_left.sum())} problems left, {least} required",
            "use more held-out problems, or set --min-problems",
            code="few-problems",
        )
    return parts.select_problems(is_left)


def _is_seen(parts: DatasetParts, models: Sequence[Model], *, with_trained: bool) -> NDArray[np.bool_]:
    """Mask of excluded training problems, shape (problems,); prints their number."""
    import numpy as np

    from ckh.learn.models.manifest import problem_id, trained_problems

    ids = [problem_id(problem) for part in parts for problem in part.problems()]
    is_trained = np.zeros(len(ids), dtype=bool)
    for model in models:
        known = frozenset() if model.is_estimate else trained_problems(model.path)
        if known is None:
            warn(
                f"the manifest of {model.path} has no training problems, which may be among these",
                "unknown-training-data",
            )
        is_seen = np.array([trained_id in (known or ()) for trained_id in ids])
        if is_seen.any():
            what = "included" if with_trained else "left out"
            warn(f"{what} {int(is_seen.sum())} of {len(ids)} problems, which {model.path} was trained on", "trained-on")
        is_trained |= is_seen
    return is_trained & (not with_trained)


def is_copy(parts: DatasetParts, model: Model, learned_from: DatasetParts | None) -> NDArray[np.bool_] | None:
    """Mask of layers trained on at another batch size, shape (problems,); None if unknown.

    The manifest states it, or the training data do.
    """
    import numpy as np

    from ckh.learn.models.manifest import problem_id, trained_layers

    op = parts.op
    known = trained_layers(model.path)
    if known is None and learned_from is not None:
        known = frozenset(problem_id(op.layer(problem)) for part in learned_from for problem in part.problems())
    if known is None:
        return None
    return np.array([problem_id(op.layer(problem)) in known for part in parts for problem in part.problems()])


def refuse_unstable(parts: DatasetParts, most: float) -> None:
    """Refuse data with too many unstable times."""
    from ckh.assess.times import unstable_share

    share = unstable_share(parts)
    if share > most:
        raise DataError(
            f"{percent(share)} of the times are unstable; the limit is {percent(most)}",
            "measure again on an idle machine, or use ckh evaluate --max-unstable",
            code="unsteady",
        )


def measure_again(texts: Sequence[str], spec: ModelSpec) -> str:
    """Command that measures problems again with all kernels; empty if ckh cannot measure the operation."""
    from ckh.archs import HOST
    from ckh.learn.models.spec import ANY

    if spec.op.measured is None:
        return ""
    problems = " ".join(shlex.quote(text) for text in texts)
    words = [f"--op {spec.op_type}", "--device host" if spec.arch == HOST else f"--arch {spec.arch}"]
    words += [f"--variant {spec.variant}"] if spec.op.has_directions and spec.variant is not None else []
    words += [f"--dtype {spec.dtype}"] if spec.dtype != ANY else []
    name = f"worst-{zlib.crc32(problems.encode()):08x}"
    bench = f"ckh bench {' '.join(words)} --problems {name}.txt --out runs/{name}"
    return f"printf '%s\\n' {problems} > {name}.txt && {bench}"


def percent(share: float | None) -> str:
    """Format a share as "98.76%", an unknown one as "-"."""
    return "-" if share is None else f"{share:.2%}"
