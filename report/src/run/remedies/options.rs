//! How a framework that runs the program's loop makes the change of a remedy: the option in place of the code.

use super::facts::Facts;

/// A part of the framework's files, the remedy, and its option.
const OPTIONS: &[(&str, &str, &str)] = &[
    (
        "transformers/trainer.py",
        "graph",
        "TrainingArguments(torch_compile=True, torch_compile_mode=\"reduce-overhead\")",
    ),
    ("transformers/trainer.py", "compile", "TrainingArguments(torch_compile=True)"),
    ("transformers/trainer.py", "compile_elementwise", "TrainingArguments(torch_compile=True)"),
    (
        "transformers/trainer.py",
        "read_value",
        "TrainingArguments(logging_nan_inf_filter=False), and a larger logging_steps",
    ),
    ("transformers/trainer.py", "fused_optimizer", "TrainingArguments(optim=\"adamw_torch_fused\")"),
    ("transformers/trainer.py", "foreach_fused", "TrainingArguments(optim=\"adamw_torch_fused\")"),
    ("transformers/trainer.py", "bf16", "TrainingArguments(bf16=True)"),
    ("transformers/trainer.py", "tf32", "TrainingArguments(tf32=True)"),
    ("transformers/trainer.py", "tf32_matmul", "TrainingArguments(tf32=True)"),
    ("transformers/trainer.py", "workers", "TrainingArguments(dataloader_num_workers=4)"),
    ("transformers/trainer.py", "more_workers", "a larger dataloader_num_workers in TrainingArguments"),
    ("transformers/trainer.py", "persistent", "TrainingArguments(dataloader_persistent_workers=True)"),
    ("transformers/trainer.py", "save_less", "a larger save_steps in TrainingArguments"),
    ("lightning/pytorch/", "read_value", "a larger log_every_n_steps, and self.log() without .item()"),
    ("lightning/pytorch/", "bf16", "Trainer(precision=\"bf16-mixed\")"),
    ("lightning/pytorch/", "save_less", "ModelCheckpoint(every_n_train_steps=...)"),
];

/// Optimizers of PyTorch with a fused form, by the file of their frames.
const FUSED: [(&str, &str); 4] = [
    ("torch/optim/adamw.py", "torch.optim.AdamW(..., fused=True)"),
    ("torch/optim/sgd.py", "torch.optim.SGD(..., fused=True)"),
    ("torch/optim/adagrad.py", "torch.optim.Adagrad(..., fused=True)"),
    // AdamW runs in it, too.
    ("torch/optim/adam.py", "Adam and AdamW have it"),
];

/// Words for the optimizer that is sampled, in parentheses.
pub(super) fn class_of_optimizer(facts: &Facts<'_>) -> String {
    let found = FUSED.iter().find(|(file, _)| facts.runs_in(file)).map(|(_, class)| *class);
    format!(" ({})", found.unwrap_or("Adam, AdamW, SGD and Adagrad have it"))
}

/// The option for this remedy of the framework whose frames were sampled, as a sentence; empty without one.
pub(super) fn option(id: &str, facts: &Facts<'_>) -> String {
    let found = OPTIONS.iter().find(|(file, of, _)| *of == id && facts.runs_in(file));
    found.map(|(.., option)| format!(" The Trainer has an option for it: {option}.")).unwrap_or_default()
}
