//! libprof.so: the library the CUDA driver loads.
