//! Memory layout, and algorithms of convolutions.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{RemedyEntry, TUNING, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::patterns::Class;
use crate::run::{Certainty, Results};

use Framework::Pytorch;

const NONE: RemedyEntry = RemedyEntry::NONE;

/// Fewest conversions between layouts in a step for several layers.
const FEWEST_CONVERSIONS: usize = 6;
/// Fewest kernels of convolutions: one convolution in training has three.
const FEWEST_CONVOLUTIONS: usize = 4;

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "channels_last",
        says: &[(
            Pytorch,
            "Store images with channels last, as tensor cores need them: model = model.to(memory_format=torch.channels_last) and \
             x = x.to(memory_format=torch.channels_last). Convolutions{at} take {share} of the time of kernels, in NCHW. This \
             helps with bf16 or TF32.",
        )],
        when: When::If(|facts| {
            let layout = facts.share(&[Class::LayoutChange]);
            let share = facts.share(&[Class::Convolutions, Class::Nchw, Class::LayoutChange]);
            let nchw = facts.share(&[Class::Nchw]);
            // Two conversions around each of few convolutions cost less than converting the images.
            let several = facts.order.is_empty()
                || facts.per_step(&[Class::LayoutChange]) >= FEWEST_CONVERSIONS
                    && facts.per_step(&[Class::Convolutions]) >= FEWEST_CONVOLUTIONS;
            (share >= 0.2 && (nchw >= 0.02 || several && layout >= 0.02)).then(|| {
                // Normalization and activations have fast forms for this layout, too.
                let rest = (1.0 - 1.0 / 1.4) * (1.0 - layout);
                // A U-Net in float16 saved 0.4 of its conversions.
                let low = 0.4 * layout + (1.0 - 1.0 / 1.1) * nchw;
                let gain = facts.without_between((low, 0.0), (layout + rest, 0.0));
                let at = facts.launched_at(&[Class::Convolutions, Class::Nchw]);
                Found { at, share, gain: Some(gain), ..Found::default() }
            })
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "at least 20 % of kernel time in convolutions, and kernels for NCHW or conversions between layouts",
        gain: "0.4 of the conversions between layouts gone and kernels for NCHW 1.1 times as fast, or all of them and the other kernels 1.4 times as fast: 1.13x was \
               measured on a U-Net in float16, and on a ResNet 3.84x became 5.29x on top of bf16",
        not_when: "conversions take less than 2 % and no kernel is for NCHW: one layer only",
        link: Some("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"),
        outside: true,
        ..NONE
    },
    RemedyEntry {
        id: "conv_bias",
        says: &[(
            Pytorch,
            "Leave out the bias in front of a batch norm, which subtracts it again: torch.nn.Conv2d(..., bias=False); for \
             inference torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn). Adding biases takes {share} of the time of kernels{at}.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let norm = facts
                .kernels
                .iter()
                .any(|kernel| ["bn_fw", "batch_norm"].iter().any(|part| kernel.name.contains(part)));
            let order: Vec<_> = facts.order.iter().flatten().map(|&index| &facts.kernels[index]).collect();
            let adds = order.windows(3).filter(|next| {
                let add = next[1].classes.has(Class::Strided) && next[1].name.contains("CUDAFunctor_add");
                let normed = ["bn_fw", "batch_norm"].iter().any(|part| next[2].name.contains(part));
                next[0].classes.has(Class::Convolutions) && add && normed
            });
            let count = adds.count();
            let add = facts
                .kernels
                .iter()
                .find(|of| of.classes.has(Class::Strided) && of.name.contains("CUDAFunctor_add"))?;
            let of_count = count as f64 / order.len().max(1) as f64;
            let part = of_count / add.of_count.max(f64::MIN_POSITIVE);
            let share = add.share * part.min(1.0);
            (norm && count > 0 && share >= 0.03).then(|| Found {
                at: facts.launched_at(&[Class::Convolutions]),
                share,
                gain: Some(facts.without(share, of_count)),
                ..Found::default()
            })
        }),
        results: Results::Rounding,
        recognized: "an addition behind a convolution and in front of a batch norm, at least 3 % of kernel time",
        gain: "these kernels gone",
        not_when: "no norm follows",
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "relayout",
        says: &[(
            Pytorch,
            "Keep one memory layout from product to product: .contiguous() and .reshape() behind a transpose copy. Such copies \
             take {share} of the time of kernels{at}. This helps where the next kernel does not need the copy.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let (share, of_count) = (facts.share(&[Class::Relayout]), facts.count_share(&[Class::Relayout]));
            (share >= 0.03).then(|| Found {
                at: facts.launched_at(&[Class::Relayout]),
                share,
                gain: Some(facts.without_between((0.6 * share, 0.6 * of_count), (share, of_count))),
                ..Found::default()
            })
        }),
        recognized: "at least 3 % of kernel time in copies that change the layout",
        gain: "60 % of these kernels to all of them gone",
        not_when: "the next kernel needs the layout",
        link: Some("https://docs.pytorch.org/docs/stable/tensor_view.html"),
        ..NONE
    },
];
