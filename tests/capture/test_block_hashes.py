"""vLLM's block hashes against CBOR laid out by hand, and its captures."""

import hashlib

from kvlife.capture.block_hashes import HashChain, block_hash


def test_numbers_take_the_shortest_form():
    """RFC 8949, 3.1 and 4.2: up to 23 in the head, then one, two and four bytes after it."""
    wanted = (
        b"\x83"  # an array of three
        b"\x42\xab\xcd"  # two bytes: the parent
        b"\x88"  # an array of eight
        b"\x00\x17\x18\x18\x18\xff\x19\x01\x00\x19\xff\xff\x1a\x00\x01\x00\x00"
        b"\x1a\xff\xff\xff\xff"
        b"\xf6"  # null
    )
    tokens = [0, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1]
    assert block_hash(b"\xab\xcd", tokens) == hashlib.sha256(wanted).digest()


def test_long_blocks_and_parents_have_longer_heads():
    """An array of 32 and a parent of 32 bytes have their lengths in a byte of their own."""
    wanted = b"\x83\x58\x20" + bytes(32) + b"\x98\x20" + b"\x01" * 32 + b"\xf6"
    assert block_hash(bytes(32), [1] * 32) == hashlib.sha256(wanted).digest()


def test_a_chain_grows_by_the_block():
    """Tokens may come in any portions; a block has its hash once it is full."""
    first = block_hash(bytes(32), [1, 2])
    second = block_hash(first, [3, 4])
    chain = HashChain(bytes(32), 2)
    lengths = []
    for portion in ([1], [2, 3], [], [4, 5]):
        chain.extend(portion)
        lengths.append((chain.num_tokens, len(chain.hashes)))
    assert lengths == [(1, 0), (3, 1), (3, 1), (5, 2)]
    assert chain.hashes == [first.hex()[:16], second.hex()[:16]]
