"""Ringloom: offload quantized matmuls to a simulated AI accelerator, exact to the bit."""
