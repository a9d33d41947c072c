"""Runs a cell of a notebook."""

import json
import sys

import statements
from IPython.core.interactiveshell import InteractiveShell


def main() -> None:
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext gpuwhy")
    shown = []
    shell.display_pub.publish = lambda data, *_, **__: shown.append(data)
    if statements.REPLAY:
        names = {"train": statements.play, "model": None, "batches": None}
    else:
        import torch

        layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()

        def train(model, batches):
            for batch in batches:
                model(batch).sum().backward()
            torch.cuda.synchronize()

        names = {"train": train, "model": layers, "batches": [torch.randn(64, 512, device="cuda")] * 100}
    shell.user_ns.update(names)
    text = open(sys.argv[1], encoding="utf-8").read()
    done = shell.run_cell(text)
    html = "".join(data.get("text/html", "") for data in shown)
    error = repr(done.error_in_exec or done.error_before_exec or "") if not done.success else ""
    if not error and "<table>" not in html:
        error = f"the cell showed no answer: {shown!r:.300}"
    print(json.dumps({"statement": text.splitlines()[0], "line": 1, "error": error}))


if __name__ == "__main__":
    main()
