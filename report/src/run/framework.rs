//! In whose words a report gives advice: those of the library, or of the language, that a program is written with.

use crate::library::Library;
use crate::run::{DeviceReport, HostReport};

/// Share of kernel time from which a library decides the words.
const MAIN_LIBRARY: f64 = 0.5;
/// Beginnings of the names of kernels that compilers make of OpenMP and OpenACC: nvc and nvfortran, clang and gcc.
const OFFLOADED: [&str; 3] = ["nvkernel_", "__omp_offloading_", "__nv_"];
/// What a trace has as the command if the file that it was made of does not name the program.
const UNNAMED: [&str; 2] = ["Kineto trace", "Nsight Systems"];
/// Beginnings of the names of programs that are written in Python, or run a program in another language.
const INTERPRETERS: [&str; 16] = [
    "python",
    "pypy",
    "ipython",
    "jupyter",
    "torchrun",
    "accelerate",
    "deepspeed",
    "ray",
    "vllm",
    "pt_main",
    "uvicorn",
    "gunicorn",
    "pytest",
    "julia",
    "matlab",
    "java",
];
/// Libraries whose kernels a program in Python launches.
const OF_PYTHON: [Library; 11] = [
    Library::Pytorch,
    Library::Triton,
    Library::Xla,
    Library::TensorFlow,
    Library::Vllm,
    Library::Cupy,
    Library::Numba,
    Library::Fbgemm,
    Library::FlashInfer,
    Library::TransformerEngine,
    Library::Apex,
];

/// The library or language whose words advice uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::run) enum Framework {
    /// Advice for any program.
    Any,
    /// PyTorch, also where nothing shows another one.
    #[default]
    Pytorch,
    Jax,
    Cupy,
    Numba,
    /// A program in C, C++ or Fortran with CUDA.
    Native,
    /// One whose compiler makes the kernels: OpenMP or OpenACC.
    Offload,
}

impl Framework {
    /// That of a program with this command line, by its kernels, the frames of its host samples, and its name.
    pub(in crate::run) fn of(devices: &[DeviceReport], host: Option<&HostReport>, command: &[String]) -> Self {
        let rows = || devices.iter().flat_map(|device| &device.kernels).filter(|row| !row.communication);
        let time = |wanted: &dyn Fn(Option<Library>) -> bool| -> f64 {
            rows().filter(|row| wanted(row.library)).map(|row| row.durations.total() as f64).sum()
        };
        let all = time(&|_| true).max(1.0);
        let of = |library: Library| time(&|other| other == Some(library)) / all;
        let any = |library: Library| rows().any(|row| row.library == Some(library));
        let offloads = || rows().any(|row| OFFLOADED.iter().any(|prefix| row.name.starts_with(prefix)));
        if of(Library::Xla) >= MAIN_LIBRARY || of(Library::Xla) > 0.0 && !any(Library::Pytorch) {
            Self::Jax
        } else if of(Library::Cupy) > 0.0 && !any(Library::Pytorch) {
            Self::Cupy
        } else if of(Library::Numba) >= MAIN_LIBRARY {
            Self::Numba
        } else if !OF_PYTHON.into_iter().any(any) && !runs_python(host) && (is_program(command) || offloads()) {
            if offloads() { Self::Offload } else { Self::Native }
        } else {
            Self::Pytorch
        }
    }

    /// True if words of Python mean nothing to the program's author.
    pub(in crate::run) fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::Offload)
    }

    /// True if a text for `of` is one for this program.
    pub(in crate::run) fn understands(self, of: Self) -> bool {
        of == Self::Any || of == self || of == Self::Native && self.is_native()
    }
}

/// True if a sampled line is one of Python.
pub(in crate::run) fn runs_python(host: Option<&HostReport>) -> bool {
    let is_python = |file: &str| file.ends_with(".py");
    host.is_some_and(|host| {
        let within = |of: &Option<(String, String)>| of.as_ref().is_some_and(|(_, file)| is_python(file));
        host.lines.iter().any(|row| is_python(&row.file) || within(&row.within))
            || host.calls.iter().any(|row| is_python(&row.file))
    })
}

/// True if this command line names a program, and it is no interpreter.
fn is_program(command: &[String]) -> bool {
    let Some(name) = command.first().filter(|name| !name.is_empty() && !UNNAMED.contains(&name.as_str())) else {
        return false;
    };
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    !name.contains(':') && !INTERPRETERS.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_interpreters_by_name() {
        for (name, program) in [
            ("./lbm_solver", true),
            ("/opt/gromacs/bin/gmx_mpi", true),
            ("python3", false),
            ("/usr/bin/python3.12", false),
            ("/opt/venv/bin/vllm", false),
            ("VLLM::EngineCore", false),
            ("ray::train", false),
            ("Kineto trace", false),
            ("Nsight Systems", false),
            ("", false),
        ] {
            assert_eq!(is_program(&[name.to_owned()]), program, "{name}");
        }
        assert!(!is_program(&[]));
    }
}
