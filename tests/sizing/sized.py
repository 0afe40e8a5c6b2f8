"""A config's cache groups by name, for tests of their bytes."""

from kvlife.sizing import ModelGeometry, Parallel, configure_kv_cache_dtype, group_bytes

ONE_RANK = Parallel()


def groups_of(config, dtype="auto", parallel=ONE_RANK, draft=None, **options):
    geometry = ModelGeometry.from_config(config)
    kv_dtype = configure_kv_cache_dtype(dtype, geometry.model_dtype)
    groups = group_bytes(geometry, kv_dtype, parallel, draft, **options)
    return {group.name: group for group in groups}


def a_token(config, dtype="auto", parallel=ONE_RANK, draft=None, **options):
    (group,) = groups_of(config, dtype, parallel, draft, **options).values()
    return group.bytes_per_token
