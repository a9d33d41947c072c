//! Minimal run-time-loaded bindings to NVIDIA CUPTI's activity API.
