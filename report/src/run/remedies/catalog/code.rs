//! What people write: entries that a line of source code opens, beside what the GPU showed.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{Rank, RemedyEntry, TUNING, Target, When};
use crate::run::remedies::facts::{Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::lines::{fits, of_numpy, of_parameters};
use crate::run::remedies::patterns::Class;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::CallKind;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use super::waits::read_less;

use Framework::{Any, Pytorch};

const NONE: RemedyEntry = RemedyEntry { results: Results::Same, ..RemedyEntry::NONE };

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "read_to_show",
        says: &[
            (
                Pytorch,
                "Read the value{at} less often: the line only prints or logs it. Keep it on the GPU, loss.detach(), and read it \
                 every n steps{detail}; a CUDA graph cannot contain the read.",
            ),
            (
                Any,
                "Read the value{at} less often: the line only prints or logs it. Keep it on the GPU, and read it every n steps{detail}; a \
                 CUDA graph cannot contain the read.",
            ),
        ],
        target: Target::Reads,
        when: When::If(|facts| read(facts, "read_to_show")),
        results: Results::Behavior,
        recognized: "as `read_value`, and the line or the next use of its result prints or logs the value",
        gain: "the simulation `no_readbacks`, never more than its interval",
        not_when: "the value also decides what runs next",
        subsumes: &["read_value"],
        rank: Rank::BeforeGraph,
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "read_to_decide",
        says: &[
            (
                Pytorch,
                "Decide on the GPU: torch.where, or a product with the condition, in place of the branch{at}, for which the CPU reads a \
                 value and waits. Where the CPU must decide, decide every n steps{detail}, or by the value of an earlier step.",
            ),
            (
                Any,
                "Decide less often{at}: the CPU reads a value and waits for it to decide what runs next. Read it every n steps{detail}, \
                 or decide by the value of an earlier step.",
            ),
        ],
        target: Target::Reads,
        when: When::If(|facts| read(facts, "read_to_decide")),
        results: Results::Behavior,
        recognized: "as `read_value`, and a condition of the line or the next use of its result needs the value",
        gain: "the simulation `no_readbacks`, never more than its interval",
        not_when: "the value is only printed",
        subsumes: &["read_value"],
        rank: Rank::BeforeGraph,
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "numpy_on_gpu",
        says: &[(
            Pytorch,
            "Compute on the GPU and copy the result: torch.{what} in place of numpy{at}. The line copies the whole tensor to the CPU \
             for it.",
        )],
        target: Target::Time(Cause::Copy),
        when: When::If(|facts| {
            let at = facts.copied_at(CopyKind::DeviceToHost).or_else(|| facts.call_at(CallKind::Copy));
            let found = facts.code(at.as_deref()).and_then(|line| of_numpy(&line).map(|name| (at, name)));
            let (at, name) = found.or_else(|| {
                let row = facts.idle_line(|line| of_numpy(line).is_some())?;
                let line = facts.code(Some(&row.place()))?;
                let name = of_numpy(&line)?;
                Some((Some(row.place()), name))
            })?;
            let copies = facts.time(Cause::Copy) >= 0.1 || facts.is(Cause::HostCpu) || facts.is(Cause::Sync);
            let gain = facts.scenario(ScenarioKind::ReadsReduced);
            copies.then(|| Found { at, what: name.to_owned(), gain, ..Found::default() })
        }),
        recognized: "the line that copies to the CPU, or is idle, calls a function of numpy that PyTorch has, too, on what it copied; \
                     copies take 10 % of the time, or the CPU's work or waits are the bottleneck",
        gain: "the simulation `reads_reduced`: 14x to 16x predicted, 13.4x measured",
        not_when: "what is copied is the result itself",
        certainty: Certainty::Measured,
        subsumes: &["reduce_first", "pinned_results", "overlap_results", "copy_less", "move_work"],
        also: |facts| facts.is(Cause::HostCpu) || facts.is(Cause::Sync),
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "one_hot_product",
        says: &[(
            Pytorch,
            "Take rows by their index in place of a product with one-hot rows{at}: weight[index], or \
             torch.nn.functional.embedding(index, weight). Products take {share} of the time of kernels.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let share = facts.share(&[Class::Products]);
            let at = facts.launched_at(&[Class::Products]);
            let gain = facts.without_between((0.4 * share, 0.0), (share, 0.0));
            (share >= 0.1 && facts.line(at.as_deref(), |line| fits("one_hot_product", line)))
                .then(|| Found::of(at, share, gain))
        }),
        recognized: "at least 10 % of kernel time in products, whose line multiplies by one_hot(...)",
        gain: "two fifths of the products to all of them gone: the rows are still read",
        not_when: "the rows are probabilities",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html"),
        ..NONE
    },
    RemedyEntry {
        id: "product_summed",
        says: &[(
            Pytorch,
            "Multiply matrices in place of a broadcast product and a sum{at}: a @ b, or torch.einsum. The product of all pairs is \
             written and read again: these kernels take {share} of the time.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let classes = [Class::Elementwise, Class::Strided, Class::Reduction];
            let share = facts.share(&classes);
            let at = facts.launched_at(&classes);
            (share >= 0.2 && facts.line(at.as_deref(), |line| fits("product_summed", line)))
                .then(|| Found::of(at, share, facts.faster(share, (2.0, 30.0))))
        }),
        results: Results::Rounding,
        recognized: "at least 20 % of kernel time in elementwise kernels and reductions, whose line sums a product of tensors with \
                     an added dimension",
        gain: "these kernels 2 to 30 times as fast (an estimate): the product of all pairs stays on the chip",
        not_when: "nothing is broadcast",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.einsum.html"),
        ..NONE
    },
    RemedyEntry {
        id: "softmax_parts",
        says: &[(
            Pytorch,
            "Use torch.softmax(x, dim) in place of exp, sum and division{at}: one kernel that reads the input once. These kernels \
             take {share} of the time.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let classes = [Class::Elementwise, Class::Strided, Class::Reduction];
            let share = facts.share(&classes);
            let at = facts.launched_at(&classes);
            (share >= 0.1 && facts.line(at.as_deref(), |line| fits("softmax_parts", line)))
                .then(|| Found::of(at, share, facts.faster(share, (1.3, 4.0))))
        }),
        results: Results::Rounding,
        recognized: "at least 10 % of kernel time in elementwise kernels and reductions, whose line divides exp(x) by its sum",
        gain: "these kernels 1.3 to 4 times as fast (an estimate): three to five passes become one or two",
        not_when: "the sum is that of something else",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html"),
        ..NONE
    },
    RemedyEntry {
        id: "cat_grows",
        says: &[(
            Pytorch,
            "Do not let a tensor grow by torch.cat{at}: each step copies all of it. Collect the parts in a list and join them once \
             after the loop, or write into a tensor that is made before it: buffer[i] = part.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let share = facts.share(&[Class::Concatenation]);
            let at = facts.launched_at(&[Class::Concatenation]).or_else(|| facts.call_at(CallKind::Copy));
            let copies = facts.copies_going(CopyKind::DeviceToDevice) * facts.time(Cause::Copy);
            let gain = facts.without_between((0.5 * share, 0.0), (share, 0.0)).and(Gain::saving(0.5 * copies, copies));
            (share.max(copies) >= 0.03 && facts.line(at.as_deref(), |line| fits("cat_grows", line)))
                .then(|| Found::of(at, share, gain))
        }),
        recognized: "at least 3 % of the time in concatenations or copies on the GPU, whose line assigns torch.cat of a name to that \
                     name",
        gain: "half of these kernels to all of them gone: each part is still written once",
        not_when: "the parts come from elsewhere: `cat`",
        subsumes: &["cat", "device_copies"],
        also: |facts| facts.is(Cause::Copy),
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.cat.html"),
        ..NONE
    },
    RemedyEntry {
        id: "norm_of_each",
        says: &[(Pytorch, "Handle all parameters in a few kernels in place of a loop over them{at}: {what}.")],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let at = facts.call_at(CallKind::Launch);
            let together = of_parameters(&*facts.code(at.as_deref())?)?;
            facts.is(Cause::Launch).then(|| Found { at, what: together.to_owned(), ..Found::default() })
        }),
        results: Results::Rounding,
        recognized: "launches are the bottleneck, and most of them come from a line that computes a norm, an average or an update in a \
                     loop over parameters()",
        gain: "unknown: its part of the launches",
        not_when: "another line launches as much",
        subsumes: &["batch_loop"],
        rank: Rank::Batch,
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"),
        ..NONE
    },
    RemedyEntry {
        id: "tensor_of_numbers",
        says: &[(
            Pytorch,
            "Do not make a tensor of Python numbers{at}: torch.tensor(list) converts one after another on the CPU. Keep them as a \
             numpy array (torch.from_numpy) or as a tensor from the start, or make them on the GPU.",
        )],
        target: Target::Time(Cause::HostCpu),
        when: When::If(|facts| {
            let row = facts.idle_line(|line| fits("tensor_of_numbers", line))?;
            (row.share >= 0.1)
                .then(|| Found::of(Some(row.place()), 0.0, Gain::saving(0.5 * row.share_low, row.share_high)))
        }),
        recognized: "at least 10 % of the time idle at a line that calls torch.tensor with a name or a list",
        gain: "half of the line's share to all of it gone",
        not_when: "the tensor is made of one number: `scalar_tensor`",
        subsumes: &["move_work"],
        also: |facts| facts.is(Cause::DataLoading),
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html"),
        ..NONE
    },
    RemedyEntry {
        id: "pin_in_loop",
        says: &[(
            Pytorch,
            "Pin memory once: make the buffer with torch.empty(..., pin_memory=True) before the loop and copy into it, or let \
             DataLoader(..., pin_memory=True) do so in a thread of its own. The line{at} pins new memory each time.",
        )],
        target: Target::Time(Cause::HostCpu),
        when: When::If(|facts| {
            let row = facts.idle_line(|line| fits("pin_in_loop", line)).filter(|row| row.share >= 0.05)?;
            Some(Found::of(Some(row.place()), 0.0, Gain::saving(0.5 * row.share_low, row.share_high)))
        }),
        recognized: "at least 5 % of the time idle at a line that calls pin_memory()",
        gain: "half of the line's share to all of it gone",
        not_when: "it runs before the loop",
        subsumes: &["move_work"],
        also: |facts| facts.is(Cause::Allocator) || facts.is(Cause::Copy),
        link: Some("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"),
        ..NONE
    },
    RemedyEntry {
        id: "stay_on_gpu",
        says: &[(
            Pytorch,
            "Keep the model on the GPU: the line{at} moves its weights to the CPU, and they are copied back before they are used \
             again. Move it to the GPU once, before the loop.",
        )],
        target: Target::Time(Cause::Copy),
        when: When::If(|facts| {
            let at = facts.copied_at(CopyKind::DeviceToHost);
            let back = facts.copies_going(CopyKind::HostToDevice) >= 0.2;
            (back && facts.line(at.as_deref(), |line| fits("stay_on_gpu", line))).then(|| {
                let (copies, waits) = (facts.time(Cause::Copy), facts.time(Cause::Sync));
                Found { at: at.clone(), gain: Some(Gain::saving(0.8 * copies, copies + waits)), ..Found::default() }
            })
        }),
        recognized: "most copies to the CPU are at a line that calls .to(\"cpu\") or .cpu() for its effect, and a fifth of the copies \
                     go to the GPU",
        gain: "four fifths of the time of copies to all of it and of the waits: at least 2.1x where 70x was measured",
        not_when: "the GPU's memory is needed in between",
        subsumes: &["reduce_first", "pinned", "pinned_results", "overlap_copies", "overlap_results", "copy_less"],
        also: |facts| facts.is(Cause::Sync) || facts.is(Cause::HostCpu),
        link: TUNING,
        ..NONE
    },
    RemedyEntry {
        id: "no_grad",
        says: &[(
            Pytorch,
            "If no gradients are needed, call the model{at} in torch.inference_mode(): no backward pass was seen, and nothing \
             around the line turns autograd off, which takes CPU time in each launch.",
        )],
        target: Target::Time(Cause::Launch),
        when: When::If(|facts| {
            /// In the same file, such lines say that gradients are needed, or that they are off already.
            const GRADIENTS: [&str; 5] =
                ["no_grad", "inference_mode", "set_grad_enabled", "requires_grad", "backward("];
            let at = facts.call_at(CallKind::Launch);
            let said = GRADIENTS.iter().any(|word| !facts.lines_with(word).is_empty());
            let calls = || facts.line(at.as_deref(), |line| fits("no_grad", line));
            (facts.is(Cause::Launch) && !facts.has_backward_pass() && !said && calls())
                .then(|| Found { at: at.clone(), ..Found::default() })
        }),
        certainty: Certainty::Guess,
        recognized: "launches are the bottleneck, no kernel or frame is of a backward pass, and most launches come from a line \
                     that calls a model outside of no_grad and inference_mode, which no other line of its file names",
        gain: "unknown: autograd's part of the CPU time of launches",
        not_when: "gradients are off already, by a caller in another file",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html"),
        trial: Some(&Trial {
            id: "no_grad",
            change: "torch.inference_mode() around each call of the outermost module",
            keep: "with torch.inference_mode(): around the calls of the model",
            how: How::PyTorch,
            needs: "no module was called with gradients on, or code of the program may compute gradients",
        }),
        results: Results::Behavior,
        ..NONE
    },
    RemedyEntry {
        id: "deterministic",
        says: &[(
            Pytorch,
            "Set torch.utils.deterministic.fill_uninitialized_memory = False: with use_deterministic_algorithms(True){at}, \
             PyTorch fills all memory that torch.empty() returns. Kernels that fill take {share} of the time of kernels, part of \
             them for zeros that the program asks for.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let set = facts.lines_with("use_deterministic_algorithms");
            let at = set.into_iter().find(|(_, line)| fits("deterministic", line)).map(|(at, _)| at)?;
            let classes = [Class::Fill];
            let (share, of_count) = (facts.share(&classes), facts.count_share(&classes));
            let is_kept = facts.lines_with("fill_uninitialized_memory").is_empty();
            (share >= 0.1 && is_kept)
                .then(|| Found::of(Some(at), share, facts.without_between((0.0, 0.0), (share, of_count))))
        }),
        recognized: "at least 10 % of kernel time in kernels that fill, and a line calls use_deterministic_algorithms(True)",
        gain: "none to all of these kernels",
        not_when: "the program reads memory before it writes it",
        link: Some("https://docs.pytorch.org/docs/stable/deterministic.html"),
        trial: Some(&Trial {
            id: "deterministic",
            change: "deterministic algorithms without filling memory",
            keep: "torch.utils.deterministic.fill_uninitialized_memory = False",
            how: How::PyTorch,
            needs: "use_deterministic_algorithms(True) was not called",
        }),
        ..NONE
    },
];

/// Reads of single values, at a line that does what this remedy is about.
fn read(facts: &Facts<'_>, id: &str) -> Option<Found> {
    let seen = facts.program.first_fix == Some(ScenarioKind::NoReadbacks) || facts.program.small_reads;
    if !seen || facts.program.reads_sizes {
        return None;
    }
    // A wait for a value is so short that a sample may show the next line; the copy is longer.
    let places = [facts.call_at(CallKind::Wait), facts.call_at(CallKind::Copy)];
    let at = places.into_iter().flatten().find(|at| facts.line(Some(at), |line| fits(id, line)))?;
    Some(read_less(facts, Some(at)))
}
