"""The constants of the digest, for kernel and reference.

    digest(page) = sum over i of mix(word[i] + (i + 1) * STEP)      modulo 2^64
    mix(x): x ^= x >> 32; x *= FACTOR; x ^= x >> 32; x *= FACTOR; x ^= x >> 32

The mix is the finaliser `lea64` of D. Lea, and STEP the golden ratio's odd 64 bits, both as in G.
Steele and S. Vigna, "LXM: better splittable pseudorandom number generators" (OOPSLA 2021).
"""

STEP = 0x9E3779B97F4A7C15
FACTOR = 0xDABA0B6EB09322E3
