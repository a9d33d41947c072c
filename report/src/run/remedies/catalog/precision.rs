//! Types of numbers, and shapes that tensor cores need.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{BEST_PRACTICES, MATRICES, RemedyEntry, TUNING, Target, When};
use crate::run::remedies::facts::{Facts, Found, Kernel};
use crate::run::remedies::patterns::Class;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;

use Framework::{Cupy, Pytorch};

const NONE: RemedyEntry = RemedyEntry::NONE;

/// Least share of kernel time in products for advice about their precision.
const PRODUCTS: f64 = 0.10;
/// Parts of the rate of tensor cores, relative to CUDA cores, that products reach: 6 to 13.5 of 14.8 were seen in bf16,
/// 5.5 to 7 of 7.4 in TF32.
const REACHED: (f64, f64) = (0.4, 0.92);
/// Time of the casts of a product by autocast, nanoseconds: two kernels of 4 us. Small products gained 1.79x with them.
const CASTS: f64 = 8_000.0;
/// What a short product loses to its start, nanoseconds.
const START: f64 = 3_000.0;

pub(super) const BF16: Trial = Trial {
    id: "bf16",
    change: "autocast in bfloat16 on the main thread",
    keep: "with torch.autocast(\"cuda\", torch.bfloat16) around the forward pass",
    how: How::PyTorch,
    needs: "the program did not import torch",
};

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "bf16",
        says: &[(
            Pytorch,
            "Run matrix products and convolutions in 16 bits: with torch.autocast(\"cuda\", dtype=torch.bfloat16): loss = \
             model(x). {share} of the time of kernels is in products and convolutions in fp32{at}. This helps if the model \
             tolerates the rounding.",
        )],
        when: When::If(|facts| {
            let share = facts.share(&[Class::Fp32Products, Class::Tf32Products]);
            let of = [Class::Fp32Products, Class::Tf32Products];
            let on_cores = facts.share(&[Class::Fp32Products]) >= facts.share(&[Class::Tf32Products]);
            let rates = match (on_cores, has_convolutions(facts)) {
                (true, true) => (2.0, REACHED.1 * facts.half_rate()),
                (true, false) => (REACHED.0 * facts.half_rate(), REACHED.1 * facts.half_rate()),
                (false, _) => (1.2, 2.0),
            };
            (facts.capability() >= 80 && share >= PRODUCTS)
                .then(|| facts.found(&of, share, facts.at_rate(&of, rates, CASTS)))
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "at least 10 % of kernel time in products in fp32 or TF32, by the types in their names; Ampere or newer",
        gain: "these kernels at 0.4 to 0.9 times the rate of bf16 (data sheet), convolutions twice as fast at least, less 8 us \
               for casts: 13.5x measured for large products, 3.84x on a ResNet in fp32, 1.79x for small ones",
        not_when: "the GPU waits for launches (autocast adds casts), or the program needs fp32",
        subsumes: &["limit_issue", "limit_tensor"],
        link: TUNING,
        trial: Some(&BF16),
        ..NONE
    },
    RemedyEntry {
        id: "fp16",
        says: &[(
            Pytorch,
            "Run matrix products and convolutions in float16 on tensor cores: torch.autocast(\"cuda\", dtype=torch.float16) \
             with torch.amp.GradScaler(). {share} of the time of kernels is in products in fp32{at}. This helps if the model \
             tolerates the rounding.",
        )],
        when: When::If(|facts| {
            let share = facts.share(&[Class::Fp32Products]);
            let gain = facts.at_rate(&[Class::Fp32Products], (2.0, facts.half_rate()), CASTS);
            ((70..80).contains(&facts.capability()) && share >= PRODUCTS)
                .then(|| facts.found(&[Class::Fp32Products], share, gain))
        }),
        results: Results::Rounding,
        recognized: "at least 10 % of kernel time in products in fp32 on Volta or Turing, which have neither TF32 nor bf16",
        gain: "these kernels 2 to 8 times as fast (rate of float16 by the data sheet)",
        not_when: "the GPU waits for launches, or the program needs fp32",
        subsumes: &["limit_issue"],
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "tf32",
        says: &[(
            Pytorch,
            "Let fp32 kernels use tensor cores: torch.backends.cudnn.allow_tf32 = True (the default) for convolutions, \
             torch.set_float32_matmul_precision(\"high\") for products. {share} of the time of kernels is in both on CUDA \
             cores{at}. This helps if a mantissa of 10 bits is enough.",
        )],
        when: When::If(|facts| on_cuda_cores(facts).filter(|_| has_convolutions(facts))),
        results: Results::Rounding,
        recognized: "at least 10 % of kernel time in convolutions and products in fp32 on CUDA cores (ffma, simt, sgemm in \
                     the names)",
        gain: "these kernels 1.25 times as fast, up to 0.9 times the rate of TF32 (data sheet); 1.23x was measured on a ResNet in fp32 \
               with channels in front",
        not_when: "the GPU has no faster TF32 (Volta, Turing, GeForce), or a solver needs fp32",
        instead_of: &["bf16"],
        subsumes: &["limit_issue"],
        link: TUNING,
        trial: Some(&Trial {
            id: "tf32",
            change: "TF32 in all products and convolutions",
            keep: "torch.set_float32_matmul_precision(\"high\") and torch.backends.cudnn.allow_tf32 = True",
            how: How::Set(&[("NVIDIA_TF32_OVERRIDE", "1")]),
            needs: "NVIDIA_TF32_OVERRIDE=1 is set already",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "tf32_matmul",
        says: &[(
            Pytorch,
            "Let fp32 matrix products use tensor cores: torch.set_float32_matmul_precision(\"high\"). {share} of the time of \
             kernels is in fp32 products on CUDA cores{at}. This helps if a mantissa of 10 bits is enough.",
        )],
        when: When::If(|facts| on_cuda_cores(facts).filter(|_| !has_convolutions(facts))),
        results: Results::Rounding,
        recognized: "at least 10 % of kernel time in matrix products in fp32 on CUDA cores, and no convolutions",
        gain: "these kernels at 0.4 to 0.9 times the rate of TF32 (data sheet), less 3 us; 5.5 to 7 of 7.4 were seen for large ones",
        not_when: "the GPU has no faster TF32 (Volta, Turing, GeForce), or a solver needs fp32",
        instead_of: &["bf16"],
        subsumes: &["limit_issue"],
        link: TUNING,
        trial: Some(&Trial {
            id: "tf32_matmul",
            change: "TF32 in matrix products",
            keep: "torch.set_float32_matmul_precision(\"high\")",
            how: How::Set(&[("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")]),
            needs: "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 is set already",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "cast_weights",
        says: &[(
            Pytorch,
            "Keep the weights in 16 bits: model.to(torch.bfloat16), with an optimizer that keeps copies in fp32, or \
             torch.compile({model}). Autocast converts them in each step: {share} of the time of kernels is in casts{at}. This \
             helps if training does not need fp32 weights.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let (share, of_count) = (facts.share(&[Class::Cast]), facts.count_share(&[Class::Cast]));
            let autocast = facts.share(&[Class::HalfProducts]) > 0.0;
            let enough = share >= 0.08 && facts.busy() >= 0.5 || of_count >= 0.15;
            let gain = facts.without_between((0.7 * share, 0.8 * of_count), (share, of_count));
            (autocast && enough && !by_hand(facts)).then(|| facts.found(&[Class::Cast], share.max(of_count), gain))
        }),
        results: Results::Rounding,
        recognized: "casts between fp32 and 16 bits take 8 % of kernel time, or are 15 % of the launches, beside products in \
                     16 bits",
        gain: "most casts gone, with their launches",
        not_when: "training must keep fp32 weights, or the casts belong to attention written by hand",
        link: Some("https://docs.pytorch.org/docs/stable/amp.html"),
        ..NONE
    },
    RemedyEntry {
        id: "mixed_operands",
        says: &[(
            Pytorch,
            "Convert the operand of another type once, before the loop: buffer = buffer.to(x.dtype). {share} of the time of \
             kernels is in elementwise kernels that convert their operands{at}.",
        )],
        when: When::Shorter(&[Class::MixedTypes], 0.03, (1.3, 4.0)),
        results: Results::Rounding,
        recognized: "at least 3 % of kernel time in elementwise kernels with operands of several types (unrolled, with casts)",
        gain: "these kernels 1.3 to 4 times as fast: 2.4 times for the same number of elements, 2.6 times measured in a program of little else",
        not_when: "the operand changes in each step",
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "fp64",
        says: &[
            (
                Cupy,
                "Use single precision if the results allow it: cupy.asarray(a, dtype=cupy.float32). {share} of the time of \
                 kernels is in float64{at}.",
            ),
            (
                Pytorch,
                "Use single precision if the results allow it: torch.from_numpy(a).float(), with \
                 torch.set_float32_matmul_precision(\"high\") for products. {share} of the time of kernels is in float64{at}.",
            ),
        ],
        when: When::If(|facts| {
            let named = [Class::Fp64Products, Class::Fp64Elements];
            let of = [Class::Fp64Products, Class::Fp64Elements, Class::EightBytes];
            // Beside doubles, elements of this size are doubles, too.
            let share = if facts.share(&named) >= 0.05 { facts.share(&of) } else { 0.0 };
            // Products: A100, H100 and their successors have half the units for float64, other GPUs 1/32 to 1/64. Their
            // tensor cores are as fast in float64 as CUDA cores in fp32 (data sheets: 19.5 and 67 TFLOP/s for both).
            let many = matches!(facts.capability(), 60 | 70 | 80 | 90 | 100);
            let on_tensor_cores = |name: &str| ["d884", "_f64f64_"].iter().any(|part| name.contains(part));
            let gain = facts.each_faster(&of, |kernel| match kernel.classes.has(Class::Fp64Products) {
                true if many && on_tensor_cores(kernel.name) => (1.0, REACHED.1 * facts.tf32_rate().max(2.4)),
                true if many => (1.1, 2.2),
                true => (4.0, 40.0),
                false => (1.7, 2.2),
            });
            (share >= 0.05).then(|| facts.found(&of, share, gain))
        }),
        results: Results::Rounding,
        certainty: Certainty::Guess,
        recognized: "at least 5 % of kernel time in kernels of doubles, by their names",
        gain: "elementwise kernels 1.7 to 2.2 times as fast: half the bytes, 2.0 times measured; products as the units of the GPU \
               for float64, those on tensor cores nothing to the rate of TF32",
        not_when: "a solver or physics needs float64",
        link: BEST_PRACTICES,
        ..NONE
    },
    RemedyEntry {
        id: "fp8",
        says: &[(
            Pytorch,
            "Products in 8 bits may be faster: torchao.float8.convert_to_float8_training(model). {share} of the time of \
             kernels is in matrix products in 16 bits{at}. This helps if the products are large and the model tolerates the rounding.",
        )],
        when: When::If(|facts| {
            // Conversions of a model to 8 bits leave convolutions as they are.
            let products =
                || facts.of(&[Class::HalfProducts]).filter(|kernel| !kernel.classes.has(Class::Convolutions));
            let share = products().map(|kernel| kernel.share).sum();
            let large = products().any(|kernel| kernel.share >= 0.1 && kernel.median_ns >= 50_000);
            let fits = facts.capability() >= 89 && facts.share(&[Class::Fp8Products]) == 0.0;
            (fits && large && share >= 0.4 && facts.is(Cause::GpuCompute))
                .then(|| facts.found(&[Class::HalfProducts], share, facts.faster(share, (1.2, 1.6))))
        }),
        results: Results::Rounding,
        certainty: Certainty::Guess,
        recognized: "at least 40 % of the kernel time of a GPU-bound program in 16-bit matrix products of over 50 us; \
                     compute capability 8.9 or more",
        gain: "these kernels 1.2 to 1.6 times as fast (an estimate)",
        not_when: "dimensions are no multiples of 16, or products are small",
        link: Some("https://github.com/pytorch/ao"),
        ..NONE
    },
    RemedyEntry {
        id: "unaligned",
        says: &[(
            Pytorch,
            "Pad the dimension that is no multiple of 8 elements (16 bits; 4 in TF32), for example vocab = (vocab + 63) // 64 * \
             64. {share} of the time of kernels is in products with operands that are not aligned to 16 bytes{at}.",
        )],
        when: When::If(|facts| {
            let share = facts.share(&[Class::Unaligned]);
            // Since Hopper aligned operands also get kernels of their own, by other instructions.
            let factors = |kernel: &Kernel<'_>| match (facts.capability() >= 90, kernel.name.contains("align1")) {
                (true, true) => (2.5, 8.0),
                (true, false) => (1.4, 5.0),
                (false, _) => (1.2, 3.0),
            };
            (share >= 0.03)
                .then(|| facts.found(&[Class::Unaligned], share, facts.each_faster(&[Class::Unaligned], factors)))
        }),
        results: Results::Rounding,
        recognized: "at least 3 % of kernel time in tensor-core kernels named align1, align2 or align4",
        gain: "these kernels 1.2 to 3 times as fast (the guide names the mechanism), since Hopper up to 8 times; 5.9 times measured for align1",
        not_when: "kernels on CUDA cores (simt), for which align1 is normal",
        link: MATRICES,
        ..NONE
    },
    RemedyEntry {
        id: "conv_cuda_cores",
        says: &[(
            Pytorch,
            "Give the 16-bit convolution that runs on CUDA cores channels for tensor cores: channels_last and 4 or 8 input \
             channels instead of 3 (torch.nn.functional.pad), or patches by reshape and Linear. It takes {share} of the time of \
             kernels{at}.",
        )],
        when: When::Shorter(&[Class::HalfWithoutTensorCores], 0.02, (2.0, 8.0)),
        results: Results::Rounding,
        recognized: "at least 2 % of kernel time in convolutions in 16 bits without tensor cores (convolve_sgemm of bf16)",
        gain: "these kernels 2 to 8 times as fast (an estimate)",
        link: Some("https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html"),
        ..NONE
    },
];

fn has_convolutions(facts: &Facts<'_>) -> bool {
    facts.of(&[Class::Convolutions]).any(|kernel| kernel.share >= 0.02)
}

/// Attention by hand has its own casts.
fn by_hand(facts: &Facts<'_>) -> bool {
    crate::run::remedies::sequences::attention_by_hand(facts).is_some()
}

fn on_cuda_cores(facts: &Facts<'_>) -> Option<Found> {
    let (share, rate) = (facts.share(&[Class::Fp32Products]), facts.tf32_rate());
    // Convolutions may keep an algorithm that gains little: 1.23x was measured.
    let least = if has_convolutions(facts) { 1.25 } else { (rate * REACHED.0).max(1.2) };
    let gain = facts.at_rate(&[Class::Fp32Products], (least, rate * REACHED.1), START);
    (share >= PRODUCTS && rate >= 1.5).then(|| facts.found(&[Class::Fp32Products], share, gain))
}
