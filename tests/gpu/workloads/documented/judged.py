"""Tests with the pytest plugin: once to store the baseline, once to compare with it."""

import json
import pathlib
import subprocess
import sys

NAMES = '''
import os
import pytest
if os.environ.get("GPU_SUITE_REPLAY_HOST"):
    import sys
    sys.path.insert(0, HERE)
    from statements import play as model
    x = gemm = a = b = None
else:
    import torch
    x = model = a = b = None
    gemm = torch.matmul

@pytest.fixture(scope="session", autouse=True)
def tensors():
    """An earlier test has used CUDA."""
    if gemm is None:
        return
    global x, model, a, b
    model = torch.nn.Softmax(-1)
    x = torch.randn(8192, 8192, device="cuda")
    a = b = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(200):
        model(x)
    torch.cuda.synchronize()

'''


def main() -> int:
    text = pathlib.Path(sys.argv[1]).read_text()
    here = str(pathlib.Path(__file__).resolve().parent)
    pathlib.Path("test_documented.py").write_text(NAMES.replace("HERE", repr(here)) + text)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "--gpuwhy-required", "-W",
            "error::gpuwhy.LateStart", "-rA", "test_documented.py"]
    first = subprocess.run([*line, "--gpuwhy-bless"], capture_output=True, text=True, check=False)
    second = subprocess.run(line, capture_output=True, text=True, check=False)
    print(first.stdout, second.stdout, file=sys.stderr)
    sys.stderr.write(first.stderr + second.stderr)
    for number, row in enumerate(text.splitlines(), 1):
        if row.startswith("def test_"):
            name = row.removeprefix("def ").split("(")[0]
            passed = all(f"PASSED test_documented.py::{name}" in run.stdout for run in (first, second))
            said = "" if passed else (first.stdout + first.stderr)[-250:] + (second.stdout + second.stderr)[-250:]
            print(json.dumps({"statement": row, "line": number, "error": said}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
