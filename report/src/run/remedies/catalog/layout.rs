//! Memory layout, and algorithms of convolutions.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::trial::{How, Trial};
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
             x = x.to(memory_format=torch.channels_last). Convolutions{at} take at least {share} of the time of kernels, in NCHW. It \
             gains most on top of bf16 (1.4x more measured on a ResNet).",
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
        beside: &["bf16"],
        link: Some("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"),
        trial: Some(&Trial {
            id: "channels_last",
            change: "channels_last in all 2D convolutions",
            keep: "model = model.to(memory_format=torch.channels_last), and the same for its input",
            how: How::PyTorch,
            needs: "no Conv2d was made",
        }),
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
            let gain = facts.without_between((0.6 * share, 0.6 * of_count), (share, of_count));
            (share >= 0.03).then(|| facts.found(&[Class::Relayout], share, gain))
        }),
        recognized: "at least 3 % of kernel time in copies that change the layout",
        gain: "60 % of these kernels to all of them gone",
        not_when: "the next kernel needs the layout",
        link: Some("https://docs.pytorch.org/docs/stable/tensor_view.html"),
        ..NONE
    },
];
