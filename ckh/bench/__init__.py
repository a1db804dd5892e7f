"""Code generation, compilation, the isolated worker and its supervisor, timing, and reference results.

Called, it is `ckh.api.benching.bench`.
"""

from ckh.callables import make_callable

make_callable(__name__, "ckh.api.benching:bench")
