"""Runs a notebook with `%%gpuwhy` through a kernel; prints the output of the cells as JSON."""

from __future__ import annotations

import json

import nbclient
import nbformat

CELLS = [
    "%load_ext gpuwhy",
    "import torch\nx = torch.zeros(1 << 16, device='cuda')",
    "%%gpuwhy\nfor _ in range(300):\n    x.add_(1)\ntorch.cuda.synchronize()\nint(x[0].item())",
    "import gpuwhy\nwith gpuwhy.profile(quiet=True) as p:\n    x.mul_(2)\np.report",
]


def main() -> dict:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=300).execute()
    shown = [output for cell in notebook.cells for output in cell.outputs]
    html = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    plain = [output["data"]["text/plain"] for output in shown if "text/plain" in output.get("data", {})]
    errors = [output["ename"] for output in shown if output.output_type == "error"]
    said = "".join(output["text"] for output in shown if output.output_type == "stream")
    return {"html": len(html), "frames": sum("srcdoc=" in text for text in html), "value": "300" in plain, "errors": errors,
            "static": all("<table>" in text for text in html), "said": said}


if __name__ == "__main__":
    print(json.dumps(main()))
