"""`ckh tune`: from the shapes of a model to a table that its server uses, by the commands that exist.

Called, it is `ckh.api.tuner.tune`.
"""

from ckh.callables import make_callable

make_callable(__name__, "ckh.api.tuner:tune")
