"""Export of a Python module that uses ckh inside another program (`ckh.integrations`), with its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.consumers import named
from ckh.files.untrusted import read_bytes
from ckh.learn.models.artifact import load_model
from ckh.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.models.artifact import Model

# Program -> architectures that it builds Composable Kernel for: Inductor's `config.rocm.ck_supported_arch`.
BUILT_FOR = {"inductor": ("gfx90a", "gfx942", "gfx950")}
MODEL_FOLDER = "model"
_MODULE = """# ckh in {program}: import this module before it compiles anything. Written by ckh {version}.
from pathlib import Path

from ckh.integrations import {program}

undo = {program}.install(top={top!r}, arch={arch!r}, model={model})
"""
_README = """# ckh in {program}

```console
PYTHONPATH=$PWD python -c "import ckh_{program}"
```

The module `ckh_{program}` needs ckh installed. Imported first, it makes {program} use the instances of Composable
Kernel that ckh ranks first; `ckh_{program}.undo()` undoes that. {uses}
"""


def module_files(program: str, model: Path | None, arch: str | None, top: int | None) -> tuple[dict[str, bytes], Any]:
    """Build the files of an export, and a description of them for JSON."""
    files: dict[str, bytes] = {}
    models = []
    loaded = None if model is None else load_model(model)
    require_use(program, arch, loaded)
    if model is not None and loaded is not None:
        spec = loaded.spec
        models.append({"name": model.resolve().name, "op_type": spec.op_type, "arch": spec.arch, "dtype": spec.dtype})
        files = {f"{MODEL_FOLDER}/{path.name}": read_bytes(path) for path in sorted(model.iterdir()) if path.is_file()}
    where = "None" if model is None else f"Path(__file__).with_name({MODEL_FOLDER!r})"
    text = _MODULE.format(program=program, version=__version__, top=top, arch=arch, model=where)
    uses = (
        "Problems that its model is not for are not changed."
        if model is not None
        else "It uses the model that fits a problem, or a substitute model with a warning."
    )
    files[f"ckh_{program}.py"] = text.encode()
    files["README.md"] = _README.format(program=program, uses=uses).encode()
    return files, {"ckh": __version__, "to": program, "models": models}


def require_use(program: str, arch: str | None, model: Model | None) -> None:
    """Refuse a model or architecture that a program cannot use."""
    model_arch = None if model is None else model.spec.arch
    wanted = model_arch if arch is None else load_arch(arch).name
    if wanted not in (None, *BUILT_FOR[program]):
        archs = ", ".join(BUILT_FOR[program])
        raise UsageError(
            f"{program} has no kernels of Composable Kernel for {wanted}",
            f"it has them for {archs}",
            code="unsupported",
        )
    if model is None:
        return
    if model_arch != wanted:
        raise UsageError(f"{model.path} is for {model_arch}, not {wanted}", "omit one of them", code="model-mismatch")
    operations = named("instances", program)
    if model.spec.op_type not in operations:
        raise UsageError(
            f"{program} has no {model.spec.op_type}", "it has " + ", ".join(operations), code="unsupported"
        )
