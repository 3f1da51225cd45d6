"""The management core: RV32I in machine mode, its memories, timer and bus."""
