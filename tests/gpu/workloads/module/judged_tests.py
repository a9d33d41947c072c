"""Tests with gpuwhy's pytest plugin: those whose name begins with test_wrong must fail, and show the observed values.
"""

import pytest
import torch


@pytest.fixture(scope="session")
def x():
    return torch.zeros(1 << 20, device="cuda")


def test_that_uses_cuda_before_others_measure(x):
    assert x.sum().item() == 0


@pytest.mark.gpu_expect(launches_at_most=3, no_pageable_copy=True, no_allocation=True)
def test_three_launches(x, gpu_profile):
    with gpu_profile:
        for _ in range(3):
            x.add_(1)
    assert gpu_profile.report.completeness["records"]["kernels"] == 3


@pytest.mark.gpu_expect(launches_at_most=2, no_sync=True)
def test_wrong_launches_and_sync(x, gpu_profile):
    with gpu_profile:
        for _ in range(3):
            x.add_(1)
        torch.cuda.synchronize()


def test_bench(x, gpu_bench):
    found = gpu_bench(lambda: x.add_(1), calls=20)
    assert 0 < found.median_us < 1000
    assert found.report.completeness["records"]["kernels"] == 20


@pytest.mark.gpu_expect(no_sync=True)
def test_wrong_measures_nothing(gpu_profile):
    pass
