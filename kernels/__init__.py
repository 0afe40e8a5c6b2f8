"""Operations on device memory: a folder each, with contract, torch reference and Triton kernel."""
