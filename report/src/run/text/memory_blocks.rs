//! Sentences about PyTorch's blocks of memory.

use profiler_core::memory::blocks::{
    BlockClass, BlockGrowth, BlockLooks, BlockSite, BlockState, DeviceBlocks, OutOfMemory,
};

use crate::text_format::names::short_path;
use crate::text_format::{bytes, counted, printable, shortened};

/// Classes with a smaller part of what is in use are summed.
const SMALL: f64 = 0.01;
/// A line is told if it has at least this part of its class.
const LARGE_LINE: f64 = 0.2;
/// A line has all of a class or of the growth if it has this part of it.
const ALL: f64 = 0.95;
/// PyTorch's own peak is told if it is this many times what was seen.
const ABOVE: f64 = 1.01;

/// Sentences about the blocks of a device, and about the looks if they are of the run.
pub(super) fn sentences(blocks: Option<&DeviceBlocks>, looks: Option<&BlockLooks>) -> Vec<String> {
    let mut all = Vec::new();
    let has_peak = blocks.is_some_and(|blocks| blocks.peak.is_some());
    if let Some(blocks) = blocks {
        all.extend(blocks.peak.as_ref().map(peak));
        all.extend(blocks.growth.as_ref().map(growth));
        all.extend(blocks.out_of_memory.first().map(out_of_memory));
        let more = blocks.out_of_memory.len().saturating_sub(1);
        all.extend((more > 0).then(|| {
            format!("Memory ran out {} more.", if more == 1 { "once".to_owned() } else { format!("{more} times") })
        }));
    }
    let Some(looks) = looks else { return all };
    if let Some(skipped @ 1..) = looks.skipped {
        let verb = if skipped == 1 { "was" } else { "were" };
        let growth = match blocks.is_some_and(|blocks| blocks.growth.is_some()) {
            true => "",
            false => ", so growth may be missed",
        };
        all.push(format!("{} {verb} skipped to bound the cost{growth}.", counted(skipped, "snapshot")));
    }
    all.extend(looks.note.as_ref().map(|note| format!("PyTorch's blocks are not followed: {}.", printable(note))));
    if has_peak || looks.note.is_none() {
        all.push("Steps are slower in this run: PyTorch recorded the stack of each allocation.".to_owned());
    }
    all
}

fn peak(state: &BlockState) -> String {
    let in_use = state.allocated_bytes as f64;
    let mut classes: Vec<_> = BlockClass::ALL
        .into_iter()
        .filter(|class| *class != BlockClass::AwaitingFree)
        .map(|class| (class, of_class(state, class)))
        .filter(|(_, sum)| *sum as f64 >= SMALL * in_use && *sum > 0)
        .map(|(class, sum)| format!("{} {}{}", class.words(), bytes(sum), line_of_class(state, class, sum)))
        .collect();
    let awaiting = of_class(state, BlockClass::AwaitingFree);
    if awaiting as f64 >= SMALL * in_use && awaiting > 0 {
        classes.push(format!("{} {}", BlockClass::AwaitingFree.words(), bytes(awaiting)));
    }
    let when = match state.moment {
        moment if state.step == 0 && moment.is_of_step() => format!("{}, first step", moment.words()),
        moment if moment.is_of_step() => format!("{}, after {}", moment.words(), counted(state.step, "step")),
        moment => moment.words().to_owned(),
    };
    let above = match state.peak_bytes {
        peak if peak as f64 > ABOVE * in_use => format!(" By PyTorch's count it was up to {}.", bytes(peak)),
        _ => String::new(),
    };
    let gap = bytes(state.largest_gap_bytes);
    let free = match state.free_bytes {
        0 => "nothing is free in PyTorch's cache".to_owned(),
        free => format!("free in PyTorch's cache {} (largest gap {gap})", bytes(free)),
    };
    format!(
        "PyTorch's peak that was seen ({when}) is {}: {}; {free}.{above}",
        bytes(state.allocated_bytes),
        classes.join(", ")
    )
}

fn of_class(state: &BlockState, class: BlockClass) -> u64 {
    let rows = state.rows.iter().filter(|row| row.class == class);
    rows.fold(0, |sum, row| sum.saturating_add(row.bytes))
}

/// The line with the most of a class whose lines say more than its name.
fn line_of_class(state: &BlockState, class: BlockClass, sum: u64) -> String {
    let is_told = matches!(class, BlockClass::Activations | BlockClass::KvCache | BlockClass::Other);
    let rows = state.rows.iter().filter(|row| is_told && row.class == class);
    let lines = rows.filter_map(|row| Some((row.site.as_ref()?, row.bytes)));
    match lines.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes as f64 >= LARGE_LINE * sum as f64) {
        Some((site, part)) if part as f64 >= ALL * sum as f64 => format!(" (at {})", place(site)),
        Some((site, part)) => format!(" ({} at {})", bytes(part), place(site)),
        None => String::new(),
    }
}

fn growth(growth: &BlockGrowth) -> String {
    let [each, low, high] = [growth.bytes, growth.low, growth.high].map(|value| bytes(value.max(0.0) as u64));
    let at = match (&growth.site, growth.site_bytes) {
        (Some(site), Some(part)) if part >= ALL * growth.bytes => format!(", allocated at {}", place(site)),
        (Some(site), Some(part)) => format!(", {} of it allocated at {}", bytes(part.max(0.0) as u64), place(site)),
        _ => String::new(),
    };
    let interval = if low == high { String::new() } else { format!(" ({low} to {high})") };
    format!("Live memory grows by {each} a step{interval}{at}.")
}

fn out_of_memory(out: &OutOfMemory) -> String {
    let at = out.site.as_ref().map(|site| format!(" at {}", place(site))).unwrap_or_default();
    let asked =
        format!("Out of memory: {} asked{at}; {} free on the GPU", bytes(out.asked_bytes), bytes(out.free_bytes));
    if out.free_bytes >= out.asked_bytes {
        return asked + ": enough, so PyTorch may be limited to less (set_per_process_memory_fraction).";
    }
    let (Some(cache), Some(gap)) = (out.cache_bytes, out.largest_gap_bytes) else { return asked + "." };
    let gaps = format!("{asked}, {} in PyTorch's cache in gaps of at most {}", bytes(cache), bytes(gap));
    if out.free_bytes.saturating_add(cache) < out.asked_bytes {
        return gaps + ": together too little, so the program needs less memory.";
    }
    if out.expandable {
        return gaps + ": fragmentation, though segments are expandable.";
    }
    gaps + ": fragmentation; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can help."
}

/// `attention.py:44 (Attention.forward)`.
fn place(site: &BlockSite) -> String {
    format!("{}:{} ({})", short_path(&site.file), site.line, printable(&shortened(&site.function, 40)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;
    use profiler_core::memory::blocks::{BlockMoment, BlockRow};

    const GB: u64 = 1_000_000_000;

    fn site(file: &str, line: u32, function: &str) -> Option<BlockSite> {
        Some(BlockSite { function: function.into(), file: format!("/home/u/{file}"), line })
    }

    fn state(rows: Vec<BlockRow>) -> BlockState {
        BlockState {
            at: Timestamp::from_nanos(1),
            moment: BlockMoment::BeforeBackward,
            step: 12,
            allocated_bytes: rows.iter().map(|row| row.bytes).sum(),
            reserved_bytes: 0,
            free_bytes: 28 * GB / 10,
            largest_gap_bytes: 6 * GB / 10,
            peak_bytes: 0,
            expandable: false,
            rows,
        }
    }

    fn row(class: BlockClass, site: Option<BlockSite>, bytes: u64) -> BlockRow {
        BlockRow { class, site, bytes, count: 1 }
    }

    #[test]
    fn the_peak_is_told_by_class_with_the_largest_line_of_activations() {
        let attention = || site("attention.py", 44, "Attention.forward");
        let mut state = state(vec![
            row(BlockClass::Parameters, site("model.py", 3, "Model.__init__"), 14 * GB),
            row(BlockClass::Gradients, None, 14 * GB),
            row(BlockClass::OptimizerState, None, 28 * GB),
            row(BlockClass::Activations, attention(), 5 * GB),
            row(BlockClass::Activations, None, 4 * GB),
            row(BlockClass::Other, attention(), GB / 10),
        ]);
        assert_eq!(
            peak(&state),
            "PyTorch's peak that was seen (before backward, after 12 steps) is 65.1 GB: parameters 14.0 GB, \
             gradients 14.0 GB, optimizer state 28.0 GB, activations and temporaries 9.0 GB (5.0 GB at attention.py:44 \
             (Attention.forward)); free in PyTorch's cache 2.8 GB (largest gap 600.0 MB)."
        );
        (state.step, state.peak_bytes, state.free_bytes) = (0, 70 * GB, 0);
        let text = peak(&state);
        assert!(text.contains("(before backward, first step)") && text.contains("; nothing is free in"), "{text}");
        assert!(text.ends_with(" By PyTorch's count it was up to 70.0 GB."), "{text}");
    }

    #[test]
    fn growth_names_the_line_and_its_part() {
        let mut all = BlockGrowth {
            bytes: 3.1e6,
            low: 2.9e6,
            high: 3.4e6,
            site: site("train.py", 61, "Loss.append"),
            site_bytes: Some(3.1e6),
        };
        let lead = "Live memory grows by 3.1 MB a step (2.9 MB to 3.4 MB)";
        assert_eq!(growth(&all), format!("{lead}, allocated at train.py:61 (Loss.append)."));
        all.site_bytes = Some(2e6);
        assert_eq!(growth(&all), format!("{lead}, 2.0 MB of it allocated at train.py:61 (Loss.append)."));
        (all.site, all.site_bytes) = (None, None);
        assert_eq!(growth(&all), format!("{lead}."));
        (all.low, all.high) = (3.1e6, 3.1e6);
        assert_eq!(growth(&all), "Live memory grows by 3.1 MB a step.");
    }

    #[test]
    fn fragmentation_is_told_only_if_gaps_and_free_memory_cover_the_request() {
        let mut out = OutOfMemory {
            at: Timestamp::from_nanos(1),
            step: 7,
            asked_bytes: 2 * GB,
            free_bytes: 14 * GB / 10,
            site: site("model.py", 91, "forward"),
            cache_bytes: Some(28 * GB / 10),
            largest_gap_bytes: Some(6 * GB / 10),
            expandable: false,
        };
        let lead = "Out of memory: 2.0 GB asked at model.py:91 (forward); 1.4 GB free on the GPU";
        let gaps = format!("{lead}, 2.8 GB in PyTorch's cache in gaps of at most 600.0 MB");
        let fix = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can help.";
        assert_eq!(out_of_memory(&out), format!("{gaps}: fragmentation; {fix}"));
        out.expandable = true;
        assert!(!out_of_memory(&out).contains(fix));
        (out.expandable, out.asked_bytes) = (false, 42 * GB / 10);
        assert!(out_of_memory(&out).contains(fix), "just enough");
        out.asked_bytes += 1;
        let text = out_of_memory(&out);
        assert!(!text.contains("fragmentation") && text.ends_with("the program needs less memory."), "{text}");
        let blocks = |count| DeviceBlocks { out_of_memory: vec![out.clone(); count], ..DeviceBlocks::default() };
        assert_eq!(sentences(Some(&blocks(2)), None)[1..], ["Memory ran out once more."]);
        assert_eq!(sentences(Some(&blocks(3)), None)[1..], ["Memory ran out 2 times more."]);
        let looks = BlockLooks { note: Some("the program does".into()), ..BlockLooks::default() };
        assert_eq!(sentences(None, Some(&looks)), ["PyTorch's blocks are not followed: the program does."]);
        (out.cache_bytes, out.largest_gap_bytes) = (None, None);
        assert_eq!(
            out_of_memory(&out),
            "Out of memory: 4.2 GB asked at model.py:91 (forward); 1.4 GB free on the GPU."
        );
        out.asked_bytes = out.free_bytes;
        let text = out_of_memory(&out);
        assert!(text.ends_with("PyTorch may be limited to less (set_per_process_memory_fraction)."), "{text}");
    }

    #[test]
    fn a_run_is_said_to_be_slower_and_skipped_snapshots_to_leave_growth_open() {
        let slower = "Steps are slower in this run: PyTorch recorded the stack of each allocation.";
        let mut looks = BlockLooks { skipped: Some(0), ..BlockLooks::default() };
        assert_eq!(sentences(None, Some(&looks)), [slower]);
        looks.skipped = Some(338);
        let open = "338 snapshots were skipped to bound the cost, so growth may be missed.";
        assert_eq!(sentences(None, Some(&looks)), [open, slower]);
        let growth = BlockGrowth { bytes: 3e6, low: 3e6, high: 3e6, site: None, site_bytes: None };
        let blocks = DeviceBlocks { growth: Some(growth), ..DeviceBlocks::default() };
        looks.skipped = Some(1);
        assert_eq!(sentences(Some(&blocks), Some(&looks))[1], "1 snapshot was skipped to bound the cost.");
    }
}
