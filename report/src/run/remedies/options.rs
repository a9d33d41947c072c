//! How a framework that runs the program's loop makes the change of a remedy: the option in place of the code.

use super::facts::Facts;

/// A framework: what runs the loop, parts of its files, and its options by remedy.
struct Owner {
    name: &'static str,
    files: &'static [&'static str],
    options: &'static [(&'static str, &'static str)],
}

const OWNERS: [Owner; 3] = [
    Owner {
        name: "The Trainer",
        files: &["transformers/trainer.py"],
        options: &[
            ("graph", "TrainingArguments(torch_compile=True, torch_compile_mode=\"reduce-overhead\")"),
            ("compile", "TrainingArguments(torch_compile=True)"),
            ("compile_elementwise", "TrainingArguments(torch_compile=True)"),
            ("read_value", "TrainingArguments(logging_nan_inf_filter=False), and a larger logging_steps"),
            ("fused_optimizer", "TrainingArguments(optim=\"adamw_torch_fused\")"),
            ("foreach_fused", "TrainingArguments(optim=\"adamw_torch_fused\")"),
            ("bf16", "TrainingArguments(bf16=True)"),
            ("tf32", "TrainingArguments(tf32=True)"),
            ("tf32_matmul", "TrainingArguments(tf32=True)"),
            ("workers", "TrainingArguments(dataloader_num_workers=4)"),
            ("more_workers", "a larger dataloader_num_workers in TrainingArguments"),
            ("persistent", "TrainingArguments(dataloader_persistent_workers=True)"),
            ("save_less", "a larger save_steps in TrainingArguments"),
        ],
    },
    Owner {
        name: "Lightning",
        // It is installed under either name.
        files: &["lightning/pytorch/", "pytorch_lightning/"],
        options: &[
            ("read_value", "a larger log_every_n_steps in Trainer(...), and self.log() without .item()"),
            ("bf16", "Trainer(precision=\"bf16-mixed\")"),
            ("anomaly", "Trainer(detect_anomaly=False)"),
            ("save_less", "ModelCheckpoint(every_n_train_steps=...)"),
        ],
    },
    Owner {
        name: "The pipeline",
        files: &["diffusers/pipelines/"],
        options: &[
            ("graph", "pipe.unet (or pipe.transformer) = torch.compile(pipe.unet, mode=\"reduce-overhead\")"),
            ("compile_elementwise", "pipe.unet (or pipe.transformer) = torch.compile(pipe.unet)"),
            ("bf16", "from_pretrained(..., torch_dtype=torch.bfloat16)"),
            ("channels_last", "pipe.unet.to(memory_format=torch.channels_last)"),
        ],
    },
];

/// Optimizers of PyTorch with a fused form on the GPU, by the file of their frames.
const FUSED: [(&str, &str); 3] = [
    ("torch/optim/adamw.py", "torch.optim.AdamW(..., fused=True)"),
    ("torch/optim/sgd.py", "torch.optim.SGD(..., fused=True)"),
    // AdamW runs in it, too.
    ("torch/optim/adam.py", "Adam and AdamW have it"),
];

/// Words for the optimizer that is sampled, in parentheses.
pub(super) fn class_of_optimizer(facts: &Facts<'_>) -> String {
    let found = FUSED.iter().find(|(file, _)| facts.runs_in(file)).map(|(_, class)| *class);
    format!(" ({})", found.unwrap_or("Adam, AdamW and SGD have it"))
}

/// The option for this remedy of the framework whose frames were sampled, as a sentence; empty without one.
pub(super) fn option(id: &str, facts: &Facts<'_>) -> String {
    let runs = OWNERS.iter().filter(|owner| owner.files.iter().any(|file| facts.runs_in(file)));
    let mut found = runs.filter_map(|owner| Some((owner.name, owner.options.iter().find(|(of, _)| *of == id)?.1)));
    found.next().map_or_else(String::new, |(name, option)| format!(" {name} has an option for it: {option}."))
}
