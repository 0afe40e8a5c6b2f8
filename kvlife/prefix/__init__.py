"""The prefix index, page keys, and the conversion of tokens."""

from kvlife.prefix.index import PrefixIndex
from kvlife.prefix.keys import PageKeys
from kvlife.prefix.layout import IndexLayout
from kvlife.prefix.policies import POLICIES, EvictionPolicy, policy_named
from kvlife.prefix.results import ORIGIN, Extent, Locked, Match, Position, Victims
from kvlife.prefix.tokens import as_tokens

__all__ = [
    "ORIGIN",
    "POLICIES",
    "EvictionPolicy",
    "Extent",
    "IndexLayout",
    "Locked",
    "Match",
    "PageKeys",
    "Position",
    "PrefixIndex",
    "Victims",
    "as_tokens",
    "policy_named",
]
