"""Captures written by hand: a pool of 7 usable blocks of 4 tokens, one full-attention group."""

import contextlib
import gzip
import hashlib
import json

HEADER = {
    "format": "kvlife-vllm-capture/1",
    "engine": "vLLM",
    "version": "0.32.0",
    "block_size": 4,
    "num_blocks": 8,
    "null_block": 0,
    "max_model_len": 32,
    "max_num_seqs": 2,
    "prefix_caching": True,
    "hash_algo": "sha256_cbor",
    "hash_block_size": 4,
    "none_hash": "00" * 32,
    "groups": [
        {
            "spec": "FullAttentionSpec",
            "manager": "FullAttentionManager",
            "block_size": 4,
            "sliding_window": None,
            "num_layers": 2,
        }
    ],
    "workload": "by hand",
}

# RFC 8949: an array of 3, the parent's 32 bytes, an array of 4 small numbers, null.
FIRST_HASH = hashlib.sha256(
    b"\x83" + b"\x58\x20" + bytes(32) + b"\x84\x01\x02\x03\x04" + b"\xf6"
).hexdigest()[:16]


class SmallCapture:
    """Writes lines as vLLM's calls end, with the numbering that goes with it."""

    def __init__(self, **header):
        self.header = HEADER | header
        self.lines = []
        self.step = 0
        self.open = []
        self.num_calls = 0

    @contextlib.contextmanager
    def call(self, op, **fields):
        """A call with others inside; `fields` may still be changed there."""
        self.num_calls += 1
        self.step += op == "schedule"
        number, parent = self.num_calls, self.open[-1] if self.open else None
        self.open.append(number)
        begun = 10 * len(self.lines)
        yield fields
        self.open.pop()
        self.lines.append(
            {
                "seq": len(self.lines),
                "t_ns": 10 * len(self.lines) + 9,
                "enter_ns": min(begun, 10 * len(self.lines)),
                "step": self.step,
                "op": op,
                "call": number,
                "parent": parent,
            }
            | fields
        )

    def put(self, op, **fields):
        """A call with none inside."""
        with self.call(op, **fields):
            pass

    def arrive(self, rid, prompt, hashes, free):
        self.put(
            "add_request",
            req=rid,
            prompt_token_ids=prompt,
            num_prompt_tokens=len(prompt),
            max_tokens=2,
            block_hashes=hashes,
            status="WAITING",
            free=free,
        )

    def snapshot(self, label, *, free_queue, refs, hashes, tables, waiting=()):
        self.put(
            "snapshot",
            label=label,
            free_queue=free_queue,
            refs=refs,
            hashes=hashes,
            cached_keys=len({tuple(named) for named in hashes.values()}),
            tables=tables,
            running=list(tables),
            waiting=list(waiting),
            free=len(free_queue),
        )

    def end(self, free):
        counts = {}
        for line in self.lines:
            counts[line["op"]] = counts.get(line["op"], 0) + 1
        self.put("end", steps=self.step, counts=counts, event_counts={}, free=free)

    def write(self, path):
        """The file, compressed as captures are."""
        text = "\n".join(json.dumps(line) for line in (self.header, *self.lines))
        path.write_bytes(gzip.compress(text.encode() + b"\n"))
        return path


def one_request():
    """A prompt of 6 tokens on blocks 1 and 2, two tokens generated, and the end of the run."""
    capture = SmallCapture()
    capture.snapshot("start", free_queue=[1, 2, 3, 4, 5, 6, 7], refs={}, hashes={}, tables={})
    capture.arrive("a", [1, 2, 3, 4, 5, 6], [FIRST_HASH], free=7)
    first_step(capture)
    with capture.call(
        "schedule", **scheduled({"a": 1}, {"a": 7}), running=["a"], usage=0.285714, free=5
    ):
        capture.put(
            "allocate_slots",
            **asked("a", status="RUNNING", new=1, computed=6, tokens=7),
            new_blocks=[[]],
            table=[[1, 2]],
            free_before=5,
            free=5,
        )
    with capture.call("update_from_output", running=[], waiting=[], computed_after={}, free=7):
        capture.put("append_tokens", **got("a", [8], 8, 7, "FINISHED_LENGTH_CAPPED"), free=5)
        end_request(capture, "FINISHED_LENGTH_CAPPED", 2, 7, "finish")
    capture.snapshot(
        "idle",
        free_queue=[2, 3, 4, 5, 6, 7, 1],
        refs={},
        hashes={"1": [FIRST_HASH, 0]},
        tables={},
    )
    capture.end(free=7)
    return capture


def first_step(capture, *, shown=True):
    """The prompt of `a` is computed whole; its first block gets its hash before that."""
    tokens = {"a": 6} if shown else {}
    with capture.call(
        "schedule",
        **scheduled(tokens, {"a": len(tokens) * 6}),
        running=["a"],
        usage=0.285714,
        free=5,
    ) as schedule:
        schedule["new"] = ["a"] if shown else []
        grant_prompt(capture)
    with capture.call(
        "update_from_output",
        running=["a"],
        waiting=[],
        computed_after={"a": len(tokens) * 6},
        free=5,
    ):
        if shown:
            capture.put("append_tokens", **got("a", [7], 7, 6, "RUNNING"), free=5)


def grant_prompt(capture):
    """The whole prompt of `a` is given blocks 1 and 2, and block 1 its hash."""
    look_up(capture, "a", 6, free=7)
    with capture.call(
        "allocate_slots",
        **asked("a", status="WAITING", new=6, computed=0, tokens=6),
        new_blocks=[[1, 2]],
        table=[[1, 2]],
        free_before=7,
        free=5,
    ):
        with capture.call(
            "get_new_blocks", req="a", group=0, n=2, blocks=[1, 2], refs=[1, 1], free=5
        ):
            for block in (1, 2):
                capture.put(
                    "maybe_evict_cached_block",
                    req="a",
                    group=0,
                    blocks=[block],
                    refs=[0],
                    evicted=False,
                    free=5,
                )
        capture.put(
            "cache_full_blocks",
            req="a",
            group=0,
            num_cached_blocks=0,
            num_full_blocks=1,
            block_size=4,
            masked=None,
            blocks=[1],
            index=[0],
            refs=[1],
            hashes=[FIRST_HASH],
            num_tokens=6,
            free=5,
        )


def scheduled(tokens, after):
    return {
        "scheduled": tokens,
        "total_tokens": sum(tokens.values()),
        "new": [],
        "resumed": [],
        "preempted": [],
        "finished_before": [],
        "spec": {},
        "computed_after": after,
        "waiting": [],
    }


def asked(rid, *, status, new, computed, tokens, hit=0):
    return {
        "req": rid,
        "ok": True,
        "status": status,
        "num_new_tokens": new,
        "num_new_computed_tokens": hit,
        "num_lookahead_tokens": 0,
        "num_computed_tokens": computed,
        "num_tokens": tokens,
        "num_prompt_tokens": 6,
    }


def got(rid, tokens, num_tokens, computed, status):
    return {
        "req": rid,
        "tokens": tokens,
        "stopped": status.startswith("FINISHED"),
        "num_tokens": num_tokens,
        "num_computed_tokens": computed,
        "status": status,
    }


def look_up(capture, rid, num_tokens, *, free, blocks=(), refs=(), hashes=()):
    capture.put(
        "get_computed_blocks",
        req=rid,
        group_blocks=[list(blocks)],
        group_refs=[list(refs)],
        group_hashes=[list(hashes)],
        hit_tokens=4 * len(blocks),
        num_tokens=num_tokens,
        num_preemptions=0,
        free=free,
    )


def end_request(capture, status, num_output, computed, why, *, keep=()):
    """The end of `a` on blocks 1 and 2; blocks in `keep` are not given back."""
    with capture.call(
        "free_request",
        req="a",
        status=status,
        num_prompt_tokens=6,
        num_output_tokens=num_output,
        num_computed_tokens=computed,
        num_preemptions=0,
        free_before=5,
        free=7,
    ):
        give_back(capture, why, keep=keep)


def give_back(capture, why, *, keep=()):
    """`a` gives blocks 1 and 2 back, the tail first."""
    blocks = [block for block in (2, 1) if block not in keep]
    with capture.call("free", req="a", table=[[1, 2]], why=why, free=7):
        capture.put(
            "free_blocks",
            req="a",
            group=0,
            why=why,
            blocks=blocks,
            refs=[0 for _ in blocks],
            hashes=[FIRST_HASH if block == 1 else None for block in blocks],
            freed=blocks,
            free=7,
        )
