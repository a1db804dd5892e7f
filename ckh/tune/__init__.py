"""`ckh tune`: from the shapes of a model to a tuned table for its server, using the other commands.

Called, it is `ckh.api.tuner.tune`.
"""

from ckh.callables import make_callable

make_callable(__name__, "ckh.api.tuner:tune")
