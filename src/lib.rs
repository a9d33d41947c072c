//! gpuprof tells, while a CUDA program runs, why it is not faster.
