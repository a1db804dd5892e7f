"""`quantization_config` of Hugging Face's `config.json`: element type and scaling of each module.

Schemes are applied to module names by the configuration's own groups and patterns. A scheme without kernels here gives
`Scheme.unread`, a reason to leave its modules out; a configuration that cannot be applied is refused. Neither is ever
taken for the unquantised type, or for another quantised one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import DataError
from ckh.problems import dtype_name
from ckh.shapes.config import TABLES
from ckh.shapes.layers import Scaling
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Fields = Mapping[str, Any]

_EXCLUSIONS = (
    *("ignore", "ignored_layers", "modules_to_not_convert", "exclude", "exclude_modules", "llm_int8_skip_modules"),
)
_WEIGHT_ONLY = ("awq", "gptq", "mxfp4", "bitsandbytes")  # methods whose inputs are not quantised
_ROW, _TENSOR = "row", "tensor"
_SCALES = {"channel": _ROW, "token": _ROW, "tensor": _TENSOR}
_LINEAR = ("Linear", "LinearBase")  # classes of all modules with a weight
_EXPERTS = {"FusedMoE": "experts"}  # class -> part of the names of its modules
_COMPRESSED_TYPES = {("float", 8): "fp8", ("float", 4): "pk_fp4", ("int", 8): "int8"}
_MODELOPT_SCALES = {"FP8": _TENSOR, "FP8_PER_CHANNEL_PER_TOKEN": _ROW}
QUANTISATION_HINT = "--dtype fp8 lists its products as if quantised so, --dtype bf16 as if not"
_NAME = re.compile(r"[\w.*?\[\]!/-]*")
# Prefixes of a text model's modules, alone and beside encoders.
_ROOTS = ("model.", "", "model.language_model.", "language_model.model.", "backbone.")
# Modules that have no products here: patterns of them are no mistake.
_ELSEWHERE = re.compile("embed|norm|vis|image|audio|mtp|conv|bias|project|talker|wav|rotary|sinks|scorer")
_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Scheme:
    """Operands of quantised products."""

    dtype: str  # element type
    scaling: Scaling = Scaling.NONE
    unread: str = ""  # why such products are left out; empty: they are not

    @property
    def is_of_mx_weights(self) -> bool:
        """True if weights alone are quantised, to MX FP4."""
        return (self.dtype, self.scaling) == ("bf16", Scaling.BLOCK_32)


class _ScaledTensor(NamedTuple):
    """Element type of a tensor, and the values that share a scale: a row, or n x k of them."""

    dtype: str
    values: str

    @property
    def by_row(self) -> _ScaledTensor:
        """The same with a scale per row, which one scale of the tensor is, repeated."""
        return self._replace(values=_ROW) if self.values == _TENSOR else self


_UNQUANTISED = _ScaledTensor("unquantised", "")
_SCHEMES = {
    (_ScaledTensor("fp8", _ROW), _ScaledTensor("fp8", _ROW)): Scheme("fp8", Scaling.ROW),
    (_ScaledTensor("int8", _ROW), _ScaledTensor("int8", _ROW)): Scheme("int8", Scaling.ROW),
    (_ScaledTensor("fp8", "128x128"), _ScaledTensor("fp8", "128")): Scheme("fp8", Scaling.BLOCK_128),
    (_ScaledTensor("pk_fp4", "32"), _ScaledTensor("pk_fp4", "32")): Scheme("pk_fp4", Scaling.BLOCK_32),
}


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of module names: whole names, parts of them between dots, wildcards, or re: and a regular expression."""

    names: frozenset[str] = frozenset()
    expressions: Mapping[str, Sequence[re.Pattern[str]]] = field(default_factory=dict)  # by the pattern's text
    used: set[str] = field(default_factory=set, compare=False)  # patterns that have matched

    def __bool__(self) -> bool:
        return bool(self.names or self.expressions)

    def match(self, spellings: Sequence[str]) -> bool:
        """True if a pattern matches a spelling of a name."""
        own = {name for spelling in spellings for name in self.names & _parts(spelling)}
        own |= {
            text
            for text, expressions in self.expressions.items()
            if any(expression.match(spelling) for expression in expressions for spelling in spellings)
        }
        self.used.update(own)
        return bool(own)

    @property
    def unused(self) -> list[str]:
        """Patterns that have matched nothing, but for those of parts without products."""
        return [text for text in sorted({*self.names, *self.expressions} - self.used) if not _ELSEWHERE.search(text)]


@dataclass(frozen=True, slots=True)
class ModuleSchemes:
    """Schemes of modules."""

    default: Scheme | None  # of modules without a scheme of their own; None: they are not quantised
    named: tuple[tuple[Patterns, Scheme], ...] = ()  # of modules by name; the first that matches holds
    excluded: Patterns = Patterns()  # modules that are not quantised

    @property
    def depends_on_names(self) -> bool:
        """True if modules differ."""
        return bool(self.named or self.excluded)

    def of(self, module: str) -> Scheme | None:
        """The scheme of a module, named as in layers.0.self_attn.q_proj; None: it is not quantised."""
        names = _spellings(module)
        if self.excluded.match(names):
            return None
        return next((scheme for patterns, scheme in self.named if patterns.match(names)), self.default)

    def report_unused(self, where: str) -> None:
        """Print the patterns that no module has taken."""
        unused = [text for patterns in (self.excluded, *(own for own, _ in self.named)) for text in patterns.unused]
        if unused:
            shown = ", ".join(text[:60] for text in unused[:_MAX_SHOWN]) + (", …" if len(unused) > _MAX_SHOWN else "")
            note_once(f"{where}: quantization_config: {len(unused)} patterns match no module that is left: {shown}")

    def replaced(self, scheme: Scheme) -> ModuleSchemes:
        """The same with another element type; schemes that have it keep their scaling."""

        def changed(own: Scheme) -> Scheme:
            return own if own.dtype == scheme.dtype else scheme

        named = tuple((patterns, changed(own)) for patterns, own in self.named)
        return ModuleSchemes(None if self.default is None else changed(self.default), named, self.excluded)


def read_quantisation(config: Any, where: str, *, is_replaced: bool = False) -> ModuleSchemes:
    """Read a `quantization_config`."""
    where = f"{where}: quantization_config"
    if not isinstance(config, dict):
        raise DataError(f"{where} must be an object, not {config!r:.60}", code="bad-field")
    nested = _object(config, "quantization", where)  # of ModelOpt
    texts = [text for part in (config, nested) for key in _EXCLUSIONS for text in _texts(part, key, where)]
    texts += [f"re:{text[2:]}" for text in _object(config, "dynamic", where) if text.startswith("-:")]  # of GPTQ
    excluded = patterns_of(texts, where)
    own = "compressed-tensors" if "config_groups" in config else "modelopt" if "quant_algo" in config else ""
    method = str(config.get("quant_method") or own)
    read = _METHODS.get(method)
    if config.get("config_groups") and read not in (None, _groups, _modelopt):
        raise DataError(f"{where} is of {method} and has config_groups, which {method} does not", code="bad-field")
    if read is not None:
        default, named = read({**nested, **config}, where)
        return ModuleSchemes(default, tuple(named), excluded)
    if method in _WEIGHT_ONLY or is_replaced:
        return ModuleSchemes(_unread(f"products with weights quantised by {method:.40}", method), (), excluded)
    raise DataError(f"{where}: quant_method {method!r:.60} is not known", QUANTISATION_HINT, code="unsupported")


_Rules = tuple["Scheme | None", "list[tuple[Patterns, Scheme]]"]


def _fp8(config: Fields, where: str) -> _Rules:
    method = config.get("quant_method")
    blocks = config.get("weight_block_size", [1, 32] if method == "mxfp8" else None)
    values = (_TENSOR if method == "fp8" else _ROW) if blocks is None else _sizes(blocks, where)
    return _scheme(_ScaledTensor("fp8", values), _ScaledTensor("fp8", values.rpartition("x")[2])), []


def _groups(config: Fields, where: str) -> _Rules:
    """The groups of compressed-tensors: by name, or by class."""
    default: Scheme | None = None
    named = []
    for name, group in _stated(config, "config_groups", where).items():
        at = f"{where}: group {name:.40}"
        fields = _object({name: group}, name, where)
        scheme = _scheme(*(_compressed(_object(fields, key, at), at) for key in ("weights", "input_activations")))
        targets = _texts(fields, "targets", at)
        if any(target in _LINEAR for target in targets):
            if default not in (None, scheme):
                raise DataError(f"{at} contradicts another group of the same modules", code="bad-field")
            default = scheme
        names = [_EXPERTS.get(target, target) for target in targets if target not in _LINEAR]
        strange = [target for target in names if target[:1].isupper()]  # as classes are
        if strange or not targets:
            what = f"modules of the class {strange[0]:.60}" if strange else "no targets"
            raise DataError(f"{at} is of {what}, which are not known", QUANTISATION_HINT, code="unsupported")
        if names:
            named.append((patterns_of(names, at), scheme))
    return default, named


def _compressed(fields: Fields, where: str) -> _ScaledTensor:
    if not fields:
        return _UNQUANTISED
    kind, bits, size = str(fields.get("type", "int")), fields.get("num_bits", 8), fields.get("group_size")
    dtype = _COMPRESSED_TYPES.get((kind, bits) if isinstance(bits, int) else (kind, 0), f"{bits!r:.9}-bit {kind:.20}")
    strategy = fields.get("strategy") or ("group" if isinstance(size, int) and size > 0 else "channel")
    return _ScaledTensor(dtype, _values(str(strategy), size, fields.get("block_structure"), where))


def _quark(config: Fields, where: str) -> _Rules:
    named = []
    for pattern, fields in _object(config, "layer_quant_config", where).items():
        own = _object({pattern: fields}, pattern, where)
        named.append((patterns_of([pattern], where), _quark_scheme(own, f"{where}: layer_quant_config")))
    if config.get("layer_type_quant_config"):
        return Scheme("", unread="products of Quark's layer_type_quant_config"), named
    return _quark_scheme(_stated(config, "global_quant_config", where), f"{where}: global_quant_config"), named


def _quark_scheme(fields: Fields, where: str) -> Scheme:
    tensors = []
    for key in ("weight", "input_tensors"):
        if isinstance(fields.get(key), list):
            return Scheme("", unread=f"products with several quantisations of a {key}")
        own = _object(fields, key, where)
        size, blocks = own.get("group_size"), own.get("block_size")
        values = _values(str(own.get("qscheme")), size, blocks, where)
        tensors.append(_ScaledTensor(dtype_name(str(own.get("dtype"))), values) if own else _UNQUANTISED)
    return _scheme(*tensors)


def _modelopt(config: Fields, where: str) -> _Rules:
    if config.get("config_groups"):
        return _groups(config, where)
    algorithm = str(config.get("quant_algo"))
    if algorithm in _MODELOPT_SCALES:
        tensor = _ScaledTensor("fp8", _MODELOPT_SCALES[algorithm])
        return _scheme(tensor, tensor), []
    return Scheme("", unread=f"products quantised as {algorithm:.40} by ModelOpt"), []


_METHODS: dict[str, Callable[[Fields, str], _Rules]] = {
    "compressed-tensors": _groups,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "ptpc_fp8": _fp8,
    "mxfp8": _fp8,
    "modelopt": _modelopt,
    "quark": _quark,
}


def _values(strategy: str, size: Any, blocks: Any, where: str) -> str:
    """The values that share a scale."""
    strategy = strategy.removeprefix("per_")
    if strategy == "group":
        return _sizes([size], where)
    return _sizes(blocks, where) if strategy == "block" else _SCALES.get(strategy, strategy[:40])


def _sizes(value: Any, where: str) -> str:
    """Sizes of blocks as text."""
    sizes = value if isinstance(value, list) else [value]
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise DataError(f"{where}: sizes of blocks must be 1 or more, not {value!r:.40}", code="out-of-range")
    return "x".join(map(str, sizes))[:40]


def _scheme(weights: _ScaledTensor, inputs: _ScaledTensor) -> Scheme:
    scheme = _SCHEMES.get((weights.by_row, inputs.by_row))
    if scheme is not None:
        if weights.values == _TENSOR:
            note_once(
                f"{weights.dtype} with one scale per tensor is listed as with one per row: {TABLES['per_tensor']}"
            )
        return scheme
    kinds = " and ".join(
        f"{tensor.dtype}{f' (scales of {tensor.values})' if tensor.values else ''} {what}"
        for tensor, what in ((weights, "weights"), (inputs, "inputs"))
    )
    return _unread(f"products with {kinds}", f"{weights.dtype}, {inputs.dtype}")


def _unread(what: str, kind: str) -> Scheme:
    """A scheme without kernels here, at least for most layers, and those that there are."""
    unread = f"{what} ({TABLES['kernels'][kind]})" if kind in TABLES["kernels"] else what
    is_mx = kind in ("mxfp4", f"pk_fp4, {_UNQUANTISED.dtype}")
    return Scheme("bf16", Scaling.BLOCK_32, unread) if is_mx else Scheme("", unread=unread)


def patterns_of(texts: Iterable[str], where: str) -> Patterns:
    """Patterns of module names."""
    names: list[str] = []
    expressions: dict[str, Sequence[re.Pattern[str]]] = {}
    for text in texts:
        if text.startswith("re:") or not _NAME.fullmatch(text):
            expressions[text] = [_compiled(text.removeprefix("re:"), where)]
        elif set(text) & set("*?["):
            expressions[text] = [re.compile(translate(text)), re.compile(translate(f"{text}.*"))]
        else:
            names.append(text)
    return Patterns(frozenset(names), expressions)


def _compiled(text: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise DataError(f"{where}: {text[:60]!r} is not a regular expression: {error}", code="bad-field") from error


def _parts(name: str) -> frozenset[str]:
    """The parts of a name between any two dots."""
    words = name.split(".")
    return frozenset(
        ".".join(words[begin:end]) for begin in range(len(words)) for end in range(begin + 1, len(words) + 1)
    )


def _spellings(module: str) -> tuple[str, ...]:
    """A module's names in the models of its family."""
    names = [module]
    for own, alias in TABLES["spellings"]:
        names += [name.replace(own, alias) for name in names if own in name]
    return tuple(root + name for root in _ROOTS for name in names)


def _object(fields: Fields, key: str, where: str) -> dict[str, Any]:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{where}: {key:.40} must be an object, not {value!r:.60}", code="bad-field")
    return value or {}


def _stated(fields: Fields, key: str, where: str) -> dict[str, Any]:
    if not (value := _object(fields, key, where)):
        raise DataError(f"{where}: {key} is missing or empty", QUANTISATION_HINT, code="missing-field")
    return value


def _texts(fields: Fields, key: str, where: str) -> Sequence[str]:
    value = fields.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise DataError(f"{where}: {key} must be a list of names, not {value!r:.60}", code="bad-field")
    return value or []
