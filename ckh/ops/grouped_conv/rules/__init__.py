"""Rule sets: named sets of kernels, made from AMD's curated tables, for a direction, dtype and architecture."""

from __future__ import annotations

from ckh.ops.grouped_conv.rules.sets import DEFAULT_RULE_SET, RULE_SETS, RuleSet, refused_of_rule_set, rule_set

__all__ = ["DEFAULT_RULE_SET", "RULE_SETS", "RuleSet", "refused_of_rule_set", "rule_set"]
