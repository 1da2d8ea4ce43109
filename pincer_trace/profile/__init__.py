"""Profiles: rules in TOML that say which effects are allowed, asked about or denied, compiled to a pure
function.
"""

from pincer_trace.profile.loading import Overlay, is_file, load
from pincer_trace.profile.model import ALLOW, CONFIRM, DENY, VIEW, Decision, Facts, Profile, Rule
from pincer_trace.profile.places import Places

__all__ = [
    "ALLOW",
    "CONFIRM",
    "DENY",
    "VIEW",
    "Decision",
    "Facts",
    "Overlay",
    "Places",
    "Profile",
    "Rule",
    "is_file",
    "load",
]
