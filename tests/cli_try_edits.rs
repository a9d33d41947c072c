//! Insertions that keep a remedy of `gpuwhy try` in the program, with the fake torch of `cli_try`.

use std::fs;

use serde_json::{Value, json};

use crate::cli_try_loops::{START, counted, stage};

/// The program with the insertions of all remedies; `None` without any.
fn kept(result: &Value, program: &str) -> Option<String> {
    let mut edits: Vec<_> = result["edits"].as_object()?.values().flat_map(|edits| edits.as_array().unwrap()).collect();
    // Those before a place stay where they are.
    edits.sort_by_key(|edit| (edit["line"].as_u64(), edit["column"].as_u64()));
    let mut lines: Vec<String> = format!("{START}{program}").lines().map(str::to_owned).collect();
    for edit in edits.iter().rev() {
        assert!(edit["file"].as_str().unwrap().ends_with("/loops.py"), "{edit}");
        let number = |name: &str| usize::try_from(edit[name].as_u64().unwrap()).unwrap();
        lines[number("line") - 1].insert_str(number("column"), edit["insert"].as_str().unwrap());
    }
    (!edits.is_empty()).then(|| lines.join("\n").strip_prefix(START).unwrap().to_owned())
}

#[test]
fn a_call_gets_the_argument_if_it_is_certain_that_it_is_the_one() {
    let Some(stage) = stage() else { return };
    for (call, wanted) in [
        ("torch.optim.AdamW(params, lr=0.1)", Some("torch.optim.AdamW(params, lr=0.1, fused=True)")),
        ("torch.optim.AdamW(params, )", Some("torch.optim.AdamW(params, fused=True, )")),
        ("torch.optim.AdamW((params))", Some("torch.optim.AdamW((params), fused=True)")),
        ("torch.optim.AdamW(p for p in params)", Some("torch.optim.AdamW((p for p in params), fused=True)")),
        (
            "torch.optim.AdamW((p for p in params), lr=(1))",
            Some("torch.optim.AdamW((p for p in params), lr=(1), fused=True)"),
        ),
        (
            "(torch.optim # größer\n  .AdamW(\n    params, # all, of them)\n    lr=\"é\",\n))",
            Some("(torch.optim # größer\n  .AdamW(\n    params, # all, of them)\n    lr=\"é\", fused=True,\n))"),
        ),
        ("Own(params); é = 'é'; other = 1", Some("Own(params, fused=True); é = 'é'; other = 1")),
        ("'é'; optimizer = Named(params)", Some("'é'; optimizer = Named(params, fused=True)")),
        ("torch.optim.AdamW(*[params])", Some("torch.optim.AdamW(*[params], fused=True)")),
        // An argument may be in there.
        ("torch.optim.AdamW(params, **options)", None),
        // Another function calls it.
        ("next(map(torch.optim.AdamW, [params]))", None),
        ("sorted([params], key=torch.optim.AdamW) and torch.optim.AdamW(params, fused=True)", None),
        // Nor is one enough of two.
        ("torch.optim.AdamW(params); torch.optim.AdamW(params, **options)", None),
    ] {
        let program = |call: &str| {
            format!(
                "import torch\nfrom torch.optim import AdamW as Named\nclass Own(torch.optim.AdamW): pass\n\
                 params, options = [torch.nn.Parameter()], {{}}\noptimizer = {call}\nprint(type(torch.optim.AdamW(params, fused=True)))\n\
                 torch.optim.AdamW(params, fused=True).step()"
            )
        };
        let result = counted(&stage, &json!({"remedies": ["fused_optimizer"]}), &program(call));
        assert!(result["applied"]["fused_optimizer"].is_number(), "{result}");
        assert_eq!(kept(&result, &program(call)), wanted.map(program), "{call}");
    }
}

#[test]
fn several_remedies_change_one_call_and_each_copy() {
    let Some(stage) = stage() else { return };
    let program = "import torch
torch.Tensor.device, torch.Tensor.is_pinned = type('Device', (), {'type': 'cpu'}), lambda tensor: True
for batch in torch.utils.data.DataLoader([torch.Tensor()] * 3, 2):
    batch.to('cuda')
    batch = batch.cuda()
";
    let result = counted(&stage, &json!({"remedies": ["pinned", "loader_prefetch"], "unit": "loader"}), program);
    let kept = kept(&result, program).unwrap();
    assert!(
        kept.contains("* 3, 2, pin_memory=True, prefetch_factor=8)")
            || kept.contains("* 3, 2, prefetch_factor=8, pin_memory=True)"),
        "{kept}"
    );
    assert!(
        kept.contains("    batch.to('cuda', non_blocking=True)\n    batch = batch.cuda(non_blocking=True)"),
        "{kept}"
    );
}

#[test]
fn a_setting_stands_behind_the_import_in_the_script() {
    let Some(stage) = stage() else { return };
    let settings = json!({"remedies": ["cudnn_search"]});
    let torch = "class Cudnn: benchmark = False\ncudnn = Cudnn()\n";
    fs::write(stage.0.path().join("lib/torch/backends.py"), torch).unwrap();
    let all = stage.0.path().join("lib/torch/__init__.py");
    let whole = fs::read_to_string(&all).unwrap();
    fs::write(&all, format!("{whole}\nfrom torch import backends")).unwrap();
    let steps = "\noptimizer = nn.optim.AdamW([nn.nn.Parameter()]); optimizer.step()";
    for (import, wanted) in [
        ("import torch as nn # fast", Some("import torch as nn # fast\nnn.backends.cudnn.benchmark = True")),
        ("import sys, torch; nn = torch", None),
        ("if True: import torch as nn", None),
        // The program decides itself.
        ("import torch as nn\nnn.backends.cudnn.benchmark = False", None),
    ] {
        let program = format!("{import}{steps}");
        let result = counted(&stage, &settings, &program);
        assert!(result["applied"]["cudnn_search"].is_number(), "{result}");
        assert_eq!(kept(&result, &program), wanted.map(|wanted| format!("{wanted}{steps}")), "{import}");
    }
}
