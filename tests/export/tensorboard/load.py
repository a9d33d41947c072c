"""Loads a trace with the TensorBoard plugin's own loader and prints the data of its views as JSON.

usage: load.py TRACE
"""

import json
import logging
import sys
import tempfile

logging.disable(logging.WARNING)

from torch_tb_profiler.profiler.data import RunProfileData  # noqa: E402

with tempfile.TemporaryDirectory() as cache:
    data = RunProfileData.parse("worker", 0, sys.argv[1], cache)
    data.process()
    data.analyze()

kernels = data.kernel_stat
steps = data.steps_costs or []
roles = ["kernel", "memcpy", "memset", "communication", "runtime", "data_loader", "cpu", "other", "total"]
print(
    json.dumps(
        {
            "kernels": {name: [int(row["count"]), float(row["sum"])] for name, row in kernels.iterrows()},
            "steps": [dict(zip(roles, map(float, step.costs))) for step in steps],
            "steps_names": data.steps_names,
            "has": {"kernel": data.has_kernel, "memory": data.has_memcpy_or_memset},
            "world_size": data.distributed_info and data.distributed_info["world_size"],
        }
    )
)
