//! Attention.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{Rank, RemedyEntry, SDPA, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::sequences;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;

use super::precision::BF16;

use Framework::Pytorch;

const NONE: RemedyEntry = RemedyEntry::NONE;

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "sdpa",
        says: &[(
            Pytorch,
            "Replace the attention that is written by hand{at} with torch.nn.functional.scaled_dot_product_attention(q, k, v), \
             with is_causal=True or attn_mask where scores are masked (transformers: attn_implementation=\"sdpa\"): scaling, softmax and casts between its two products take {share} of \
             the time of kernels. This helps if the attention weights themselves are not returned.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::attention_by_hand),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "a chain of elementwise kernels with a softmax between two matrix products, at least 5 % of kernel time \
                     (of the launches if the GPU waits for them)",
        gain: "the chain gone, and a tenth to 80 % of the products, which no longer move the scores; 15.6x and 16.7x measured",
        not_when: "the attention weights are used, or the mask is not additive (flex_attention)",
        subsumes: &["fuse", "mask_built", "cast_weights", "limit_memory", "relayout"],
        link: SDPA,
        trial: Some(&Trial {
            id: "sdpa",
            change: "scaled_dot_product_attention in models of transformers",
            keep: "attn_implementation=\"sdpa\"",
            how: How::PyTorch,
            needs: "no model of transformers with eager attention was made",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "sdpa_fp32",
        says: &[(
            Pytorch,
            "Attention in fp32 has no flash kernel: pass q, k and v in torch.bfloat16. It takes {share} of the time of \
             kernels{at}. This helps if the model tolerates the rounding.",
        )],
        when: When::If(|facts| {
            let of = [Class::FusedAttentionFp32];
            let (share, rate) = (facts.share(&of), facts.half_rate());
            (share >= 0.05).then(|| Found {
                at: facts.launched_at(&of),
                share,
                // The start and the end of a kernel take some microseconds.
                gain: Some(facts.at_rate(&of, ((0.4 * rate).max(1.2), rate.max(1.5)), 5_000.0)),
                ..Found::default()
            })
        }),
        results: Results::Rounding,
        recognized: "at least 5 % of kernel time in fused attention of fp32 (fmha_cutlassF_f32)",
        gain: "these kernels at 0.4 to 1 times the rate of bf16 relative to fp32 (data sheet), less 5 us; 12.5 of 14.8 measured",
        not_when: "the GPU waits for launches",
        link: SDPA,
        trial: Some(&BF16),
        ..NONE
    },
    RemedyEntry {
        id: "mask_built",
        says: &[(
            Pytorch,
            "Do not build the mask as a tensor: scaled_dot_product_attention(q, k, v, is_causal=True), or attention over packed \
             sequences (flash_attn_varlen_func). Filling it takes {share} of the time of kernels{at}. This helps if the mask is \
             causal or follows from lengths.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            // A fill of this length writes at least some tens of megabytes.
            let large = facts.of(&[Class::Fill, Class::TriangularMask]).filter(|kernel| kernel.median_ns >= 10_000);
            let share: f64 = large.map(|kernel| kernel.share).sum();
            let attention = facts.share(&[Class::FusedAttention]);
            // A triangle halves the products.
            let least = if facts.share(&[Class::TriangularMask]) > 0.0 { 0.3 } else { 0.0 };
            let gain = facts.without_between((share + least * attention, 0.0), (share + 0.75 * attention, 0.0));
            (share >= 0.03 && attention >= 0.03).then(|| facts.found(&[Class::TriangularMask], share, gain))
        }),
        results: Results::Rounding,
        recognized: "fills or triangular masks of over 10 us beside fused attention, at least 3 % of kernel time",
        gain: "these kernels gone, and up to three quarters of the attention, at least 30 % if the mask is a triangle: half of the \
               products, and a faster kernel without a mask; 63 % measured",
        not_when: "the bias is learned",
        link: SDPA,
        ..NONE
    },
    RemedyEntry {
        id: "attention_build",
        says: &[(
            Pytorch,
            "Call torch.backends.cuda.enable_cudnn_sdp(False): cuDNN builds an attention kernel for each new length{at}, and other \
             kernels need no build.",
        )],
        target: Target::Time(Cause::KernelBuild),
        when: When::If(|facts| {
            let cudnn = facts.devices.iter().flat_map(|device| &device.kernels);
            let cudnn = cudnn.into_iter().any(|row| row.name.contains("cudnn") && row.name.contains("sdpa"));
            let seen = facts.builds_in(&["sdpa", "scaled_dot_product_attention"]);
            (facts.is(Cause::KernelBuild) && cudnn && seen).then(|| facts.built_here())
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "kernels are built in lines of attention while steps run, and attention kernels of cuDNN run",
        gain: "without builds: 2.63x (2.06x to 3.22x) measured on text generation",
        not_when: "all lengths were built: in a longer run it is over",
        subsumes: &["new_shapes", "new_kernels"],
        link: Some("https://docs.pytorch.org/docs/stable/backends.html"),
        trial: Some(&Trial {
            id: "attention_build",
            change: "no attention by cuDNN, which builds a kernel for each size",
            keep: "torch.backends.cuda.enable_cudnn_sdp(False)",
            how: How::PyTorch,
            needs: "this PyTorch does not use cuDNN for attention",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "kv_cat",
        says: &[(
            Pytorch,
            "Keep the cache of keys and values in place: model.generation_config.cache_implementation = \"static\". Concatenation \
             for each token takes {share} of the launches{at}. This also allows torch.compile and CUDA graphs.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let (share, of_count) = (facts.share(&[Class::Concatenation]), facts.count_share(&[Class::Concatenation]));
            let decodes = facts.host.is_some()
                && facts.launches_in(&["transformers/cache_utils", "DynamicCache", "/generation/"]) > 0.02;
            (decodes && (share >= 0.03 || of_count >= 0.03))
                .then(|| facts.found(&[Class::Concatenation], of_count, facts.without(share, of_count)))
        }),
        results: Results::Rounding,
        recognized: "concatenations beside lines of text generation, at least 3 % of kernel time or launches",
        gain: "these kernels gone: 7 % of kernel time in text generation",
        not_when: "outputs are short",
        link: Some("https://huggingface.co/docs/transformers/llm_optims"),
        rank: Rank::BeforeGraph,
        trial: Some(&Trial {
            id: "kv_cat",
            change: "a static cache of keys and values in generate() of transformers",
            keep: "model.generation_config.cache_implementation = \"static\"",
            how: How::PyTorch,
            needs: "generate() of transformers was not called, or with a cache of its own",
        }),
        ..NONE
    },
];
