//! Elementwise kernels, norms, losses and other kernels between products.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{COMPILE, FUSED_OPTIMIZER, RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::gain::Gain;
use crate::run::remedies::options::class_of_optimizer;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::sequences;
use crate::run::{Certainty, Results};

use super::launches::COMPILE_MODULE;

use Framework::Pytorch;

const NONE: RemedyEntry = RemedyEntry { results: Results::Rounding, ..RemedyEntry::NONE };

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "fuse",
        says: &[(
            Pytorch,
            "Join the elementwise kernels that pass over the same data: torch.compile on the function{at}. {what} kernels in \
             rows of three or more take {share} of the time of kernels.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::chains),
        recognized: "at least three elementwise kernels, softmaxes or reductions of over 10 us in a row, 10 % of kernel time in \
                     all but the first of each row",
        gain: "each row takes 0.5 to 1.5 times as long as its longest kernel; 0.75 times for 13 kernels by torch.compile",
        not_when: "the kernels are short: then launches are the cost (`compile`)",
        link: COMPILE,
        outside: false,
        trial: Some(&COMPILE_MODULE),
        ..NONE
    },
    RemedyEntry {
        id: "gelu_parts",
        says: &[(
            Pytorch,
            "Compute GELU in one kernel: torch.nn.functional.gelu(x, approximate=\"tanh\") (transformers: \
             activation_function=\"gelu_pytorch_tanh\"). Here powers, products and tanh are kernels of their own{at}: {what} in \
             a step.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::gelu_parts),
        recognized: "pow, mul, add, mul, tanh, add, mul in a row, at least 3 % of kernel time or of the launches",
        gain: "0.5 to 1.5 times as long as the longest of these kernels; 0.65 times measured",
        not_when: "tanh or pow alone",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html"),
        ..NONE
    },
    RemedyEntry {
        id: "rmsnorm_parts",
        says: &[(
            Pytorch,
            "Compute RMS norm in one kernel: torch.compile, or torch.nn.RMSNorm(dim) in a model of your own. Here it is pow, mean, \
             rsqrt and products{at}: {what} kernels in a step.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::rmsnorm_parts),
        recognized: "pow, mean, add, rsqrt, mul in a row, at least 3 % of kernel time or of the launches",
        gain: "with casts and products beside them 0.33 to 1.5 times as long as the longest; 0.5 times measured",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html"),
        trial: Some(&COMPILE_MODULE),
        ..NONE
    },
    RemedyEntry {
        id: "rope_parts",
        says: &[(
            Pytorch,
            "Join the kernels of the rotary embedding (mul, neg, cat, mul, add){at} with torch.compile: {what} in a step.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::rope_parts),
        recognized: "neg, cat, mul, add in a row, at least 3 % of kernel time or of the launches",
        gain: "0.5 to 1.5 times as long as the longest of these kernels",
        link: COMPILE,
        trial: Some(&COMPILE_MODULE),
        ..NONE
    },
    RemedyEntry {
        id: "strided",
        says: &[(
            Pytorch,
            "Make transposed operands contiguous once, before the loop: x = x.contiguous(). Elementwise kernels over strided or \
             broadcast operands take {share} of the time of kernels{at}. It changes nothing for operands that are broadcast.",
        )],
        when: When::If(|facts| {
            let strided = facts.of(&[Class::Strided]).filter(|kernel| {
                !kernel.classes.has_any(&[Class::Relayout, Class::Cast]) && kernel.median_ns >= 10_000
            });
            let share: f64 = strided.map(|kernel| kernel.share).sum();
            (share >= 0.1).then(|| facts.found(&[Class::Strided], share, facts.faster(share, (1.2, 2.0))))
        }),
        // The same kernels broadcast. Copies that change a layout show that something is transposed.
        unless: |facts| facts.share(&[Class::Relayout]) == 0.0,
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "at least 10 % of kernel time in strided elementwise kernels of over 10 us that do not only copy, beside copies \
                     that change a layout",
        gain: "these kernels 1.2 to 2 times as fast (an estimate)",
        not_when: "operands are broadcast by design",
        link: Some("https://docs.pytorch.org/docs/stable/tensor_view.html"),
        ..NONE
    },
    RemedyEntry {
        id: "cat",
        says: &[(
            Pytorch,
            "Write results into slices of one tensor instead of torch.cat{at}, which copies all of it ({share} of the time of \
             kernels; the backward pass of chunk() and unbind() does the same).",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let share = facts.share(&[Class::Concatenation]);
            let gain = facts.without_between((0.25 * share, 0.0), (share, 0.0));
            (share >= 0.03).then(|| facts.found(&[Class::Concatenation], share, gain))
        }),
        unless: |facts| facts.launches_in(&["transformers/cache_utils", "DynamicCache", "/generation/"]) > 0.02,
        results: Results::Same,
        recognized: "at least 3 % of kernel time in concatenations, outside of text generation",
        gain: "a quarter of these kernels to all of them gone: the new part is still written",
        not_when: "the copy is needed",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.cat.html"),
        ..NONE
    },
    RemedyEntry {
        id: "scatter",
        says: &[(
            Pytorch,
            "Use a sparse product instead of messages that are written out and then added{at}: adj @ x with adj in CSR form \
             (torch_sparse.SparseTensor as adj_t). Index and scatter kernels take {share} of the time of kernels. This helps if \
             no features of edges enter the message.",
        )],
        when: When::If(|facts| {
            let share = facts.share(&[Class::Scatter]);
            let gathers = facts.share(&[Class::Gather]) > 0.0 || facts.share(&[Class::Strided]) >= 0.1;
            (share >= 0.1 && gathers).then(|| facts.found(&[Class::Scatter], share, facts.faster(share, (1.5, 5.0))))
        }),
        recognized: "at least 10 % of kernel time in scatter and index kernels, beside gathers",
        gain: "these kernels 1.5 to 5 times as fast (an estimate)",
        link: Some("https://pytorch-geometric.readthedocs.io/en/latest/advanced/sparse_tensor.html"),
        ..NONE
    },
    RemedyEntry {
        id: "index_grad",
        says: &[(
            Pytorch,
            "Use torch.index_select(x, 0, index) or torch.nn.functional.embedding instead of x[index]{at}: the backward pass of \
             indexing sorts, and takes {share} of the time of kernels.",
        )],
        when: When::Shorter(&[Class::IndexGradient], 0.03, (3.0, 50.0)),
        unless: |facts| !facts.has_backward_pass(),
        recognized: "indexing_backward_kernel takes at least 3 % of kernel time, in a program with a backward pass",
        gain: "these kernels 3 to 50 times as fast: 22 times measured; 49.5 s became 0.55 s in a public case",
        certainty: Certainty::Guess,
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.index_select.html"),
        ..NONE
    },
    RemedyEntry {
        id: "index_put",
        says: &[(
            Pytorch,
            "Add by torch.index_add() or scatter_add_() instead of index_put_(..., accumulate=True){at}, which sorts the indices: it \
             takes {share} of the time of kernels. Sums are then in another order.",
        )],
        when: When::Shorter(&[Class::IndexGradient], 0.03, (3.0, 50.0)),
        unless: |facts| facts.has_backward_pass(),
        recognized: "indexing_backward_kernel takes at least 3 % of kernel time, in a program without a backward pass",
        gain: "these kernels 3 to 50 times as fast, as for `index_grad`",
        certainty: Certainty::Guess,
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html"),
        ..NONE
    },
    RemedyEntry {
        id: "sort_topk",
        says: &[(
            Pytorch,
            "Sort less: torch.topk(x, k, sorted=False) instead of a full sort, or keys of 32 bits{at}. Sorting takes {share} of \
             the time of kernels. This may help if the order of all is not needed.",
        )],
        when: When::Shorter(&[Class::Sort], 0.05, (2.0, 10.0)),
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "at least 5 % of kernel time in sorts and top-k",
        gain: "these kernels 2 to 10 times as fast: a selection reads the keys about as often as one of a sort's passes; 5 times measured",
        not_when: "the order is needed",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.topk.html"),
        ..NONE
    },
    RemedyEntry {
        id: "rnn_cells",
        says: &[(
            Pytorch,
            "Run the whole sequence in one call: torch.nn.LSTM or torch.nn.GRU instead of a loop over LSTMCell{at}. Cells take \
             {share} of the kernels. It may help if the cell is a standard one.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let cells = [Class::RecurrentCell];
            let (share, of_count) = (facts.share(&cells), facts.count_share(&cells));
            let gain = facts.without_between((0.5 * share, 3.0 * of_count), (share, 5.0 * of_count));
            (share >= 0.1 || of_count >= 0.1).then(|| facts.found(&cells, share.max(of_count), gain))
        }),
        certainty: Certainty::Guess,
        recognized: "at least 10 % of kernel time or launches in recurrent cells",
        gain: "three to five launches for each cell gone: its products, and the addition of their results",
        not_when: "the cell is the program's own",
        subsumes: &["batch_loop"],
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html"),
        ..NONE
    },
    RemedyEntry {
        id: "dequantize",
        says: &[(
            Pytorch,
            "Multiply 4-bit weights without expanding them (a Marlin kernel, torchao.quantization.quantize_), or use bf16 if it \
             fits: expanding them takes {share} of the time of kernels{at}.",
        )],
        target: Target::FewerKernels,
        when: When::Gone(&[Class::Dequantize], 0.1),
        certainty: Certainty::Guess,
        recognized: "kDequantizeBlockwise takes at least 10 % of kernel time",
        gain: "these kernels gone",
        link: Some("https://github.com/pytorch/ao"),
        ..NONE
    },
    RemedyEntry {
        id: "foreach_fused",
        says: &[(
            Pytorch,
            "Let the optimizer pass over the weights once: pass fused=True where it is made{detail}. Here it does so in {what} \
             kernels of different kinds, {share} of the time of kernels{at}.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let kinds = facts.of(&[Class::Foreach]).count();
            let (share, of_count) = (facts.share(&[Class::Foreach]), facts.count_share(&[Class::Foreach]));
            // Grouping the tensors takes the CPU longer than a kernel.
            let idle = facts.idle_in(&["torch/optim/"]).map_or(0.0, |(share, _)| share);
            let worth = share >= 0.03 || of_count >= 0.05 || idle >= 0.1;
            let gain = facts.without_between((0.5 * share, 0.6 * of_count), (0.75 * share, 0.95 * of_count));
            let found = facts.found(&[Class::Foreach], share, gain.and(Gain::saving(0.5 * idle, 0.9 * idle)));
            let (what, detail) = (kinds.to_string(), class_of_optimizer(facts));
            (kinds >= 5 && worth && facts.share(&[Class::FusedOptimizer]) == 0.0).then_some(Found {
                what,
                detail,
                ..found
            })
        }),
        recognized: "at least five kinds of foreach kernels, 3 % of kernel time, 5 % of the launches or 10 % of the time idle in \
                     torch/optim",
        gain: "half to three quarters of the bytes gone, and 50 to 90 % of the idle time in torch/optim: 1.03x to 1.05x on a \
               vision transformer",
        not_when: "the optimizer has no fused form",
        subsumes: &["move_work"],
        link: Some("https://docs.pytorch.org/docs/stable/optim.html"),
        trial: Some(&FUSED_OPTIMIZER),
        ..NONE
    },
];
