"""Kernels, apart from the blocks that call them: C for the CPU, Triton for the GPU, and quantised weights.

cpu_kernels.c, cpu_kernels.py    products of a few rows (gemv) and whole layers, in C; compiled and loaded on first use
cpu_layer.py, cpu_decode.py      one decoding step through all layers in one call of C
gpu_kernels.py, gpu_gemv.py      one row times a matrix in Triton
gpu_decode.py                    one decoding step through a whole stack in five kernels a layer
gpu_cross_entropy.py             loss and gradient over a large vocabulary, in place
quantized.py                     int8 and int4 weights
"""
