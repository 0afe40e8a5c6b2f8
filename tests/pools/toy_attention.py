"""A toy attention layer over an engine's KV, and the same over contiguous KV."""

import math

import attrs
import numpy as np
import torch

from kvlife.kernels.numerics.bounds import error_bound
from kvlife.pools import KvBuffers, Latent, MultiHead

VOCABULARY = 50
MAX_LEN = 128
HEADS, K_DIM, V_DIM = 2, 64, 32
LATENT, ROPE = 64, 32
# What the largest drawn value is below; an fp4 tensor's scale brings it to the range of e2m1, e4m3.
LARGEST = 4.0
FP4_SCALE = LARGEST / (6 * 448)
# Keeps the weights of the softmax apart, so that each position counts in the output.
QUERY_SIZE = 1 / 16


def kv_layout(kind, dtype, order, num_layers=2):
    """A layout of each kind, with a scale where the dtype takes one."""
    scale = FP4_SCALE if dtype == "nvfp4" else 1.0
    shared = {"num_layers": num_layers, "dtype": dtype, "order": order}
    if kind == "latent":
        return Latent(latent_dim=LATENT, rope_dim=ROPE, scale=scale, **shared)
    return MultiHead(
        num_kv_heads=HEADS, k_dim=K_DIM, v_dim=V_DIM, k_scale=scale, v_scale=scale, **shared
    )


class ToyLayers:
    """Layers whose KV depends on the token, its position and the layer: what is shared is equal."""

    def __init__(self, layout, seed=0):
        drawn = torch.Generator().manual_seed(seed)
        self.layout = layout
        is_latent = isinstance(layout, Latent)
        shapes = [(LATENT,), (ROPE,)] if is_latent else [(HEADS, K_DIM), (HEADS, V_DIM)]
        self.tokens, self.places = (
            [self._draw(size, shape, drawn) for shape in shapes] for size in (VOCABULARY, MAX_LEN)
        )
        # A latent layer attends over the whole row, and takes the latent part for values.
        self.query_shape = (1, LATENT + ROPE) if is_latent else (HEADS, K_DIM)
        self.queries = self._draw(MAX_LEN, self.query_shape, drawn) * QUERY_SIZE

    def _draw(self, size, shape, drawn):
        several = (self.layout.num_layers, size, *shape)
        return torch.randn(several, generator=drawn).clamp(-LARGEST / 2, LARGEST / 2)

    def kv(self, layer, tokens, start=0):
        """The two tensors of a layer's KV for positions from `start` on, fp32."""
        there = slice(start, len(tokens))
        chosen = torch.as_tensor(np.asarray(tokens)[there], dtype=torch.int64)
        return tuple(
            token[layer, chosen] + place[layer, there]
            for token, place in zip(self.tokens, self.places, strict=True)
        )

    def attend(self, layer, position, kv):
        """The output of one query over these positions, in fp64."""
        k, v = self._as_heads(*kv)
        scores = torch.einsum("hd,nhd->hn", self.queries[layer, position].double(), k)
        weights = torch.softmax(scores / math.sqrt(k.shape[-1]), dim=-1)
        return torch.einsum("hn,nhd->hd", weights, v)

    @staticmethod
    def _as_heads(first, second):
        first, second = first.double(), second.double()
        if first.ndim == 2:
            return torch.cat((first, second), -1)[:, None], first[:, None]
        return first, second

    def bound(self, layer, position, kv):
        """How far the output can be from that of unquantised KV; see the test's docstring."""
        scale = FP4_SCALE if self.layout.dtype == "nvfp4" else 1.0
        errors = [
            error_bound(part.flatten(1), self.layout.storage, scale).reshape(part.shape)
            for part in kv
        ]
        k_error, v_error = self._as_heads(*errors)
        _, v = self._as_heads(*kv)
        query = self.queries[layer, position].double().abs()
        score_error = torch.einsum("hd,nhd->hn", query, k_error) / math.sqrt(query.shape[-1])
        spread = torch.expm1(2 * score_error.amax(-1))[:, None]
        return spread * v.abs().amax(0) + (1 + spread) * v_error.amax(0)


@attrs.frozen
class Served:
    """An engine's requests, with what each has of tokens, and how their KV is written and read."""

    engine: object
    pools: object
    layers: dict
    tokens: dict = attrs.field(factory=dict)
    num_compared: list = attrs.field(factory=lambda: [0])

    def groups(self):
        return self.engine.ledger.layout.groups

    def fill(self, rid, start):
        """Write the KV of positions [start, end) of a request in all groups, and commit."""
        tokens = self.tokens[rid]
        if start < len(tokens):
            self.engine.allocate([rid], [len(tokens)])
        for group in self.groups():
            slots = self.engine.slots([rid], [start], [len(tokens)], group.name)
            self._store(group.name, tokens, start, slots)
        self.engine.commit([rid])

    def _store(self, name, tokens, start, slots):
        layers = self.layers[name]
        for layer in range(layers.layout.num_layers):
            k, v = layers.kv(layer, tokens, start)
            self.pools.store(layer, k, v, slots, group=name)

    def admit(self, rid, tokens):
        self.tokens[rid] = list(tokens)
        admission = self.engine.admit(rid, tokens)
        self.fill(rid, admission.prefix_len)
        return admission

    def decode(self, rids, token):
        """One token for each request, written where the batch's slots say."""
        batch = self.engine.batch(rids)
        self.engine.decode(batch)
        for rid in rids:
            self.tokens[rid].append((token + len(self.tokens[rid])) % VOCABULARY)
        for group in self.groups():
            slots = self.engine.last_slots(batch, group.name)
            for rid, slot in zip(rids, slots.split(1), strict=True):
                self._store(group.name, self.tokens[rid], len(self.tokens[rid]) - 1, slot)
        self.engine.commit(batch)

    def compare(self, rids):
        """Each request's next output in every layer is that over contiguous KV."""
        for rid in rids:
            tokens = self.tokens[rid]
            for group in self.groups():
                low = 0 if group.window is None else max(0, len(tokens) - group.window)
                slots = self.engine.slots([rid], [low], [len(tokens)], group.name)
                for layer in range(self.layers[group.name].layout.num_layers):
                    self._compare_layer(group.name, layer, tokens, low, slots)

    def _compare_layer(self, name, layer, tokens, low, slots):
        layers, buffers = self.layers[name], self.pools.buffers(name)
        found = buffers.load(layer, slots, torch.float32)
        plain = tuple(part[low:] for part in layers.kv(layer, tokens))
        contiguous = KvBuffers(layers.layout, 1, len(tokens) - low + 1)
        places = torch.arange(1, len(tokens) - low + 1)
        contiguous.store(layer, *plain, places)
        same = contiguous.load(layer, places, torch.float32)
        assert all(torch.equal(one, other) for one, other in zip(found, same, strict=True))
        position = len(tokens) - 1
        output = layers.attend(layer, position, found)
        assert torch.equal(output, layers.attend(layer, position, same))
        exact = layers.attend(layer, position, plain)
        assert bool(((output - exact).abs() <= layers.bound(layer, position, plain)).all())
        self.num_compared[0] += 1
