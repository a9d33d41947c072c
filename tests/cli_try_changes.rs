//! What `gpuwhy try` changes in PyTorch, and what it takes for a step, with the fake torch of `cli_try`.

use crate::cli_try::{FUSED, Place, TRAIN, near, outcomes};

#[test]
fn what_comes_before_training_is_no_step_of_it() {
    let Some(place) = Place::new() else { return };
    // Features are computed, or batches read, for longer than a measurement takes.
    let model = "class Model(torch.nn.Module):
    def forward(self): torch.clock.spend('work')
model = Model()
for _ in range(300): model()
";
    let batches = "for _ in DataLoader(range(300)): torch.clock.spend('work')\n";
    for before in [model, batches] {
        let program = TRAIN.replace("optimizer =", &format!("{before}optimizer ="));
        let program = program.replace("    optimizer.step()", "    train(optimizer)");
        let train = "class Loss:
    def backward(self): pass
def train(optimizer):
    Loss().backward()
    optimizer.step()
";
        let document = place.json(&FUSED, &program.replacen("from torch", &format!("{train}from torch"), 1));
        assert_eq!(document["unit"], "optimizer");
        near(&document["remedies"][0]["gain"], 2.0);
    }
}

#[test]
fn images_change_their_layout_once_a_step() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
class Model(torch.nn.Module):
    def __init__(self): self.parts = [torch.nn.Conv2d() for _ in range(4)]
    def forward(self, images):
        # A residual connection: the sum has the layout of its first part.
        for part in self.parts: images = (images, part(images))[0]
model, images = Model(), torch.Tensor()
for _ in range(5000): model(images)";
    let document = place.json(&["--allow", "rounding", "--remedy", "channels_last"], program);
    assert_eq!(outcomes(&document), [("channels_last", "helps")]);
    near(&document["remedies"][0]["gain"], 0.08 / 0.03);
}

#[test]
fn a_switch_for_half_precision_is_turned_on_and_regions_of_a_model_are_kept() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
def work(): torch.clock.spend('fast' if torch.half[0] else 'work')
class Model(torch.nn.Module):
    def forward(self):
        work()
        with torch.autocast('cuda', enabled=False): work()
model = Model()
for _ in range(5000):
    with torch.autocast('cuda', enabled=False): model()";
    let document = place.json(&["--allow", "rounding", "--remedy", "bf16"], program);
    near(&document["remedies"][0]["gain"], 0.04 / 0.025);
}

#[test]
fn a_module_of_the_program_is_compiled_and_a_function_is_not() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
class Colors(torch.nn.Module):
    def forward(self, images): torch.clock.spend('work')
change, images = Colors(), torch.Tensor()
for _ in range(5000): change(images)";
    let compile = ["--allow", "rounding", "--remedy", "compile"];
    near(&place.json(&compile, program)["remedies"][0]["gain"], 2.0);
    let function = format!("{TRAIN}    (lambda images: images)(torch.Tensor())");
    let document = place.json(&compile, &function);
    assert_eq!(outcomes(&document), [("compile", "not_applicable")]);
    assert!(
        document["remedies"][0]["why"]
            .as_str()
            .unwrap()
            .ends_with("put @torch.compile above the one that launches the most kernels")
    );
}
