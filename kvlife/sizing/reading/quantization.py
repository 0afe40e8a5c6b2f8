"""Quantisation: what a checkpoint says of its KV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

ALGORITHM_KEYS = ("kv_cache_quant_algo", "kv_cache_dtype")


def fp8_statement(quantization: Mapping[str, object]) -> str | None:
    """The statement by which KV is fp8 ("kv_cache_quant_algo is 'FP8'"), or None without one.

    Understands ModelOpt (`kv_cache_quant_algo`, also inside `quantization`), compressed-tensors
    (`kv_cache_scheme`) and Quark (`kv_cache_quant_config`).
    """
    for scope in (quantization, quantization.get("quantization")):
        if isinstance(scope, Mapping):
            for statement in _statements(scope):
                return statement
    return None


def _statements(scope: Mapping[str, object]) -> Iterator[str]:
    for key in ALGORITHM_KEYS:
        algorithm = scope.get(key)
        if isinstance(algorithm, str) and algorithm.lower().startswith("fp8"):
            yield f"{key} is {algorithm!r}"
    scheme = scope.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        if bits == 8 and kind == "float":
            yield f"kv_cache_scheme is {bits} bits of {kind}"
    dtypes = set(_output_dtypes(scope.get("kv_cache_quant_config")))
    if dtypes and all(dtype.startswith("fp8") for dtype in dtypes):
        yield f"kv_cache_quant_config is {', '.join(sorted(dtypes))}"


def _output_dtypes(layers: object) -> Iterator[str]:
    if isinstance(layers, Mapping):
        for layer in layers.values():
            outputs = layer.get("output_tensors") if isinstance(layer, Mapping) else None
            if isinstance(outputs, Mapping):
                yield str(outputs.get("dtype"))


def checkpoint_quantization(config: Mapping[str, object]) -> Mapping[str, object]:
    """The quantisation that a config.json carries, of the language model first; empty if none."""
    for scope in (config.get("text_config"), config):
        if isinstance(scope, Mapping):
            for key in ("quantization_config", "compression_config"):
                found = scope.get(key)
                if isinstance(found, Mapping):
                    return found
    return {}
