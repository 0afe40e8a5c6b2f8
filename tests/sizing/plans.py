"""Configurators for tests, by how many bytes are available and not by how much a device has."""

from fractions import Fraction

from kvlife.sizing import KVCacheConfigurator, ModelGeometry, configure_kv_cache_dtype

# A device so large that half of it, which the plans below may take, holds them all.
DEVICE = 1 << 50
GIB = 1 << 30


def configurator(model, available, dtype="bf16", **options):
    """A configurator for which exactly so many bytes are available; `model` may be a config."""
    geometry = model if isinstance(model, ModelGeometry) else ModelGeometry.from_config(model)
    reserved = sum(options.get("reservations", {}).values())
    return KVCacheConfigurator(
        geometry=geometry,
        dtype=configure_kv_cache_dtype(dtype, geometry.model_dtype),
        free_bytes=available + DEVICE // 2 + reserved,
        mem_fraction=Fraction(1, 2),
        **options,
    )


def planned(model, available, dtype="bf16", **options):
    """The plan of these bytes."""
    return configurator(model, available, dtype, **options).configure(DEVICE)
