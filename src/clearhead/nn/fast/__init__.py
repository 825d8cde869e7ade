"""Fast paths: C kernels for a CPU, Triton kernels for a GPU, quantised weights. Blocks call them."""
