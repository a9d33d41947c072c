//! JSON form of PC samples. Shares are 0 to 1, relative to the samples of the function unless stated.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;

use super::{FunctionSource, InstructionSource, LineSource, SourceReport, Stall};
use crate::words::not_sampled;

fn stalls(stalls: &[Stall]) -> BTreeMap<&str, u64> {
    stalls.iter().map(|stall| (&*stall.reason, stall.samples)).collect()
}

document! {
    from: SourceReport {
        outcomes: from.outcomes,
        reasons: from.outcomes.iter().map(|&outcome| not_sampled(outcome)).collect::<Vec<_>>(),
        sampled_ns: from.sampled_ns,
        period_cycles: from.period_cycles,
        samples: from.samples,
        lost_samples: from.lost,
        buffer_overflows: from.full,
        foreign_samples: from.foreign,
        lost_modules: from.modules_lost,
        functions: from.functions,
    }
    from: FunctionSource {
        name: from.name,
        symbol: from.symbol,
        // Not every JSON reader can represent 64-bit numbers.
        module: format!("{:016x}", from.module),
        samples: from.share.samples,
        share_of_all: from.share.share,
        low: from.share.low,
        high: from.share.high,
        stalls: stalls(&from.stalls),
        hot_line: from.hot_line().and_then(|hot| from.lines.iter().position(|line| line.place == hot.place)),
        lines: from.lines,
        instructions: from.instructions,
    }
    from: LineSource {
        file: from.place.file,
        line: from.place.line,
        text: from.text,
        samples: from.share.samples,
        share: from.share.share,
        low: from.share.low,
        high: from.share.high,
        waiting_samples: from.waiting.samples,
        waiting_share: from.waiting.share,
        waiting_low: from.waiting.low,
        waiting_high: from.waiting.high,
        stalls: stalls(&from.stalls),
    }
    from: InstructionSource {
        offset: from.offset,
        sass: from.text,
        file: from.place.as_ref().map(|place| &place.file),
        line: from.place.as_ref().map(|place| place.line),
        samples: from.share.samples,
        share: from.share.share,
        stalls: stalls(&from.stalls),
    }
}
