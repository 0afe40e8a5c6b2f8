"""References recounted from the tables."""

from kvlife.kernels.audit_refs.contract import audit_refs

__all__ = ["audit_refs"]
