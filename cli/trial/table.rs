//! The remedies that can be applied from outside, and how.
//!
//! Variables are set here; changes of PyTorch are in `changes.py`, under the same names.

use std::ffi::OsString;

pub use gpuwhy_report::run::Results;
use gpuwhy_report::run::remedies;

/// How a remedy is applied.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Variables are set to these values.
    Set(&'static [(&'static str, &'static str)]),
    /// This setting is added to the list in the first of these variables that is set, or in the last one.
    Add(&'static [&'static str], &'static str),
    /// A variable is unset, and PyTorch changed in case the program sets it.
    Unset(&'static str),
    /// PyTorch is changed when the program imports it.
    PyTorch,
}

/// A remedy that can be tried.
#[derive(Debug)]
pub struct Remedy {
    /// Name, as in reports.
    pub id: &'static str,
    /// What is changed.
    pub change: &'static str,
    /// What to write into the program to keep it.
    pub keep: &'static str,
    /// How it is applied.
    pub how: How,
    /// Why it may find nothing to change.
    pub needs: &'static str,
}

impl Remedy {
    /// The remedy with this name. Two of a report have the same change.
    pub fn named(id: &str) -> Option<&'static Self> {
        let id = remedies::tried_as(id);
        REMEDIES.iter().find(|remedy| remedy.id == id)
    }

    /// Effect on the results, as the catalogue has it; what is not in it could change anything.
    pub fn results(&self) -> Results {
        remedies::remedy(self.id).map_or(Results::Behavior, |entry| entry.results)
    }

    /// True if it works without PyTorch.
    pub fn is_for_any_program(&self) -> bool {
        matches!(self.how, How::Set(_) | How::Add(..))
    }

    /// Changes to the environment: `None` unsets a variable. `variable` looks up the present value. Empty if
    /// everything is set already.
    pub fn environment(&self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, Option<OsString>)> {
        match self.how {
            How::Set(values) => {
                let all = values.iter().filter(|(name, value)| variable(name).is_none_or(|now| now != *value));
                all.map(|&(name, value)| (name, Some(value.into()))).collect()
            }
            How::Add(names, setting) => {
                let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
                let found = names.iter().find_map(|name| Some((*name, set(name)?)));
                let (key, _) = setting.split_once(':').unwrap_or((setting, ""));
                match found {
                    Some((_, value)) if value.to_string_lossy().contains(key) => Vec::new(),
                    Some((name, mut value)) => {
                        value.push(",");
                        value.push(setting);
                        vec![(name, Some(value))]
                    }
                    None => names.last().map(|name| (*name, Some(setting.into()))).into_iter().collect(),
                }
            }
            How::Unset(name) => vec![(name, None)],
            How::PyTorch => Vec::new(),
        }
    }
}

const NO_LOADER: &str = "no DataLoader that it changes was made";

/// All remedies that can be tried, in the order in which `--list` prints them.
pub const REMEDIES: &[Remedy] = &[
    Remedy {
        id: "tf32",
        change: "TF32 in all products and convolutions",
        keep: "torch.set_float32_matmul_precision(\"high\") and torch.backends.cudnn.allow_tf32 = True",
        how: How::Set(&[("NVIDIA_TF32_OVERRIDE", "1")]),
        needs: "NVIDIA_TF32_OVERRIDE=1 is set already",
    },
    Remedy {
        id: "tf32_matmul",
        change: "TF32 in matrix products",
        keep: "torch.set_float32_matmul_precision(\"high\")",
        how: How::Set(&[("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")]),
        needs: "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 is set already",
    },
    Remedy {
        id: "bf16",
        change: "autocast in bfloat16 on the main thread",
        keep: "with torch.autocast(\"cuda\", torch.bfloat16) around the forward pass",
        how: How::PyTorch,
        needs: "the program did not import torch",
    },
    Remedy {
        id: "channels_last",
        change: "channels_last in all 2D convolutions",
        keep: "model = model.to(memory_format=torch.channels_last), and the same for its input",
        how: How::PyTorch,
        needs: "no Conv2d was made",
    },
    Remedy {
        id: "cudnn_search",
        change: "cuDNN measures which algorithm is fastest",
        keep: "torch.backends.cudnn.benchmark = True",
        how: How::PyTorch,
        needs: "it does so already",
    },
    Remedy {
        id: "cudnn_no_search",
        change: "cuDNN does not measure algorithms for each size",
        keep: "torch.backends.cudnn.benchmark = False",
        how: How::PyTorch,
        needs: "the program did not turn torch.backends.cudnn.benchmark on",
    },
    Remedy {
        id: "attention_build",
        change: "no attention by cuDNN, which builds a kernel for each size",
        keep: "torch.backends.cuda.enable_cudnn_sdp(False)",
        how: How::PyTorch,
        needs: "this PyTorch does not use cuDNN for attention",
    },
    Remedy {
        id: "sdpa",
        change: "scaled_dot_product_attention in models of transformers",
        keep: "attn_implementation=\"sdpa\"",
        how: How::PyTorch,
        needs: "no model of transformers with eager attention was made",
    },
    Remedy {
        id: "compile",
        change: "torch.compile around the outermost module",
        keep: "model = torch.compile(model)",
        how: How::PyTorch,
        needs: "no module was called on the GPU, or it is compiled already; for plain functions, put @torch.compile above the \
                one that launches the most kernels",
    },
    Remedy {
        id: "fused_optimizer",
        change: "fused=True in SGD, Adagrad, Adam and AdamW",
        keep: "fused=True for the optimizer",
        how: How::PyTorch,
        needs: "no optimizer that can be fused was made",
    },
    Remedy {
        id: "workers",
        change: "worker processes in data loaders that have none",
        keep: "DataLoader(..., num_workers=8, persistent_workers=True)",
        how: How::PyTorch,
        needs: "no DataLoader without workers was made, or only one CPU core is free",
    },
    Remedy {
        id: "more_workers",
        change: "twice the worker processes in data loaders",
        keep: "a larger num_workers in DataLoader(...)",
        how: How::PyTorch,
        needs: "no DataLoader with workers was made, or it has one for each CPU core",
    },
    Remedy {
        id: "loader_prefetch",
        change: "prefetch_factor=8 in data loaders with workers",
        keep: "DataLoader(..., prefetch_factor=8)",
        how: How::PyTorch,
        needs: NO_LOADER,
    },
    Remedy {
        id: "loader_io",
        change: "more workers and prefetch_factor=8 in data loaders",
        keep: "a larger num_workers and prefetch_factor=8 in DataLoader(...)",
        how: How::PyTorch,
        needs: NO_LOADER,
    },
    Remedy {
        id: "persistent",
        change: "workers of data loaders live longer than an epoch",
        keep: "DataLoader(..., persistent_workers=True)",
        how: How::PyTorch,
        needs: NO_LOADER,
    },
    Remedy {
        id: "pinned",
        change: "pinned memory in data loaders, copies from it do not wait",
        keep: "DataLoader(..., pin_memory=True) and x.to(\"cuda\", non_blocking=True)",
        how: How::PyTorch,
        needs: NO_LOADER,
    },
    Remedy {
        id: "gc",
        change: "no garbage collection after the first step",
        keep: "gc.freeze() and gc.disable() after start-up, gc.collect() every 1,000 steps",
        how: How::PyTorch,
        needs: "no step was made",
    },
    Remedy {
        id: "empty_cache",
        change: "torch.cuda.empty_cache() does nothing",
        keep: "no torch.cuda.empty_cache() within the loop",
        how: How::PyTorch,
        needs: "torch.cuda.empty_cache() was not called",
    },
    Remedy {
        id: "fragmentation",
        change: "expandable segments in PyTorch's allocator",
        keep: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        how: How::Add(&["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True"),
        needs: "expandable_segments is set already",
    },
    Remedy {
        id: "worker_threads",
        change: "one thread for each process in CPU libraries",
        keep: "OMP_NUM_THREADS=1 and MKL_NUM_THREADS=1",
        how: How::Set(&[("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")]),
        needs: "OMP_NUM_THREADS=1 is set already",
    },
    Remedy {
        id: "anomaly",
        change: "no anomaly detection",
        keep: "no torch.autograd.set_detect_anomaly(True)",
        how: How::PyTorch,
        needs: "the program does not turn anomaly detection on",
    },
    Remedy {
        id: "launch_blocking",
        change: "launches that do not wait",
        keep: "CUDA_LAUNCH_BLOCKING unset",
        how: How::Unset("CUDA_LAUNCH_BLOCKING"),
        needs: "CUDA_LAUNCH_BLOCKING is not set",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const HOOKS: &str = include_str!("changes.py");

    #[test]
    fn every_change_of_pytorch_is_in_the_python_file() {
        for remedy in REMEDIES {
            let is_hook = HOOKS.contains(&format!("    \"{}\": _", remedy.id))
                || HOOKS
                    .lines()
                    .any(|line| line.starts_with("LOADER = ") && line.contains(&format!("\"{}\"", remedy.id)));
            assert_eq!(is_hook, matches!(remedy.how, How::PyTorch | How::Unset(_)), "{}", remedy.id);
            assert_eq!(Remedy::named(remedy.id).unwrap().change, remedy.change);
            // No report advises the search.
            let entry = remedies::remedy(remedy.id);
            assert!(entry.map_or(remedy.id == "cudnn_search", |entry| entry.outside), "{}", remedy.id);
        }
    }

    #[test]
    fn settings_are_added_to_what_is_set_and_not_twice() {
        let fragmentation = Remedy::named("fragmentation").unwrap();
        let with = |set: &'static [(&str, &str)]| {
            fragmentation.environment(|name| Some(set.iter().find(|(other, _)| *other == name)?.1.into()))
        };
        let added = "expandable_segments:True";
        assert_eq!(with(&[]), [("PYTORCH_CUDA_ALLOC_CONF", Some(added.into()))]);
        assert_eq!(
            with(&[("PYTORCH_ALLOC_CONF", "backend:native")]),
            [("PYTORCH_ALLOC_CONF", Some(format!("backend:native,{added}").into()))]
        );
        assert_eq!(with(&[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")]), []);
        let threads = Remedy::named("worker_threads").unwrap();
        assert_eq!(threads.environment(|_| Some("1".into())), []);
        assert_eq!(threads.environment(|_| None).len(), 2);
        let blocking = Remedy::named("launch_blocking").unwrap();
        assert_eq!(blocking.environment(|_| None), [("CUDA_LAUNCH_BLOCKING", None)]);
    }
}
