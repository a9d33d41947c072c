//! Table of processes: its columns for a width, and their contents.

use gpuwhy_report::text_format::duration;
use profiler_core::leaf::Cause;

use crate::terminal::cut;
use crate::top::process::{Presence, ProcessView};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewColumn {
    title: &'static str,
    /// Characters; 0 for the remaining width.
    pub width: usize,
    pub right: bool,
    kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Host,
    Process,
    Rank,
    Gpus,
    State,
    Step,
    Busy,
    Bottleneck,
    BestCase,
    Cost,
    Lost,
    Command,
}

const fn column(title: &'static str, width: usize, right: bool, kind: ColumnKind) -> ViewColumn {
    ViewColumn { title, width, right, kind }
}

const ALL: [ViewColumn; 12] = [
    column("HOST", 12, false, ColumnKind::Host),
    column("PID", 7, true, ColumnKind::Process),
    column("RANK", 4, true, ColumnKind::Rank),
    column("GPUS", 4, true, ColumnKind::Gpus),
    column("STATE", 9, false, ColumnKind::State),
    column("STEP", 8, true, ColumnKind::Step),
    column("BUSY", 5, true, ColumnKind::Busy),
    column("BOTTLENECK", 18, false, ColumnKind::Bottleneck),
    column("BEST", 7, true, ColumnKind::BestCase),
    column("COST", 5, true, ColumnKind::Cost),
    column("LOST", 4, true, ColumnKind::Lost),
    column("COMMAND", 0, false, ColumnKind::Command),
];

/// Minimum number of characters for the command.
const COMMAND: usize = 7;

/// Columns of a table.
#[derive(Clone, Debug)]
pub struct Columns(Vec<ViewColumn>);

impl Columns {
    /// Columns that are useful for these processes and fit into `width` characters.
    pub fn fitting(width: usize, processes: &[&ProcessView]) -> Self {
        let hosts = processes.iter().any(|process| !process.key.host.is_empty());
        let ranks = processes.iter().any(|process| process.live.as_ref().is_some_and(|live| live.rank.is_some()));
        let several = processes.iter().any(|process| process.live.as_ref().is_some_and(|live| live.devices.len() > 1));
        let mut columns: Vec<_> = ALL
            .into_iter()
            .filter(|column| match column.kind {
                ColumnKind::Host => hosts,
                ColumnKind::Rank => ranks,
                ColumnKind::Gpus => several || width >= 110,
                _ => true,
            })
            .collect();
        // Drop columns, the least important first, until the command has enough space.
        let taken = |columns: &[ViewColumn]| columns.iter().map(|column| column.width + 1).sum::<usize>();
        for kind in [
            ColumnKind::Gpus,
            ColumnKind::Busy,
            ColumnKind::Cost,
            ColumnKind::Step,
            ColumnKind::Rank,
            ColumnKind::State,
            ColumnKind::Host,
        ] {
            if taken(&columns) + COMMAND <= width {
                break;
            }
            columns.retain(|column| column.kind != kind);
        }
        Self(columns)
    }

    /// The columns in display order.
    pub fn all(&self) -> &[ViewColumn] {
        &self.0
    }

    pub fn titles(&self) -> Vec<String> {
        self.0.iter().map(|column| column.title.to_owned()).collect()
    }
}

/// Cells of a process's row.
pub fn cells(columns: &Columns, process: &ProcessView) -> Vec<String> {
    columns.all().iter().map(|column| cell(column.kind, process)).collect()
}

fn cell(kind: ColumnKind, process: &ProcessView) -> String {
    let live = process.live.as_ref();
    let percent = |share: f64, places: usize| format!("{:.places$} %", share * 100.0);
    let reported = match kind {
        ColumnKind::Host => Some(cut(&process.key.host, 12)),
        ColumnKind::Process => Some(process.key.process.clone()),
        ColumnKind::Rank => live.and_then(|live| live.rank).map(|rank| rank.to_string()),
        ColumnKind::Gpus => live.map(|live| (live.devices.len() as u64 + live.devices_beyond).to_string()),
        ColumnKind::State => Some(match &process.presence {
            Presence::Here => process.status.state.clone(),
            Presence::Silent(_) => "silent".to_owned(),
            Presence::Ended => "ended".to_owned(),
        }),
        ColumnKind::Step => live.and_then(|live| live.steps.as_ref()).map(|steps| duration(steps.median_ns)),
        ColumnKind::Busy => live.and_then(|live| live.busy).map(|busy| percent(busy, 0)),
        ColumnKind::Bottleneck => Some(bottleneck(process)),
        ColumnKind::BestCase => {
            live.filter(|live| !live.starting_up).and_then(|live| live.best_case).map(|best_case| match best_case {
                best_case if best_case >= 1_000.0 => ">1000x".to_owned(),
                best_case => format!("{best_case:.1}x"),
            })
        }
        ColumnKind::Cost => live.and_then(|live| live.cost).map(|cost| percent(cost, 1)),
        ColumnKind::Lost => Some(few_letters(process.status.lost)),
        ColumnKind::Command => Some(program(&process.status.command)),
    };
    reported.filter(|reported| !reported.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// Bottleneck by its JSON name, with its share.
fn bottleneck(process: &ProcessView) -> String {
    if process.live.as_ref().is_some_and(|live| live.starting_up) {
        return "starting up".to_owned();
    }
    match process.bottleneck() {
        (None, _) => process.status.bottleneck.clone(),
        (Some(cause @ (Cause::NoWork | Cause::CannotTell)), _) => cause.name().to_owned(),
        (Some(cause), 0.0) => cause.name().to_owned(),
        (Some(cause), share) => format!("{} {:.0} %", cause.name(), share * 100.0),
    }
}

/// Command without the folder of its program.
pub fn program(command: &str) -> String {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    let name = program.rsplit('/').next().unwrap_or(program);
    format!("{name} {rest}").trim_end().to_owned()
}

/// Start and end of `text`, with `~` in between: functions of one file, and kernels of one library, differ at
/// their end.
pub fn cut_inside(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= width || width < 2 {
        return cut(text, width);
    }
    let begin = width / 3;
    let end = letters.len() - (width - 1 - begin);
    letters[..begin].iter().chain(&['~']).chain(&letters[end..]).collect()
}

/// A count in at most four characters.
fn few_letters(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        1_000_000..1_000_000_000 => format!("{}M", count / 1_000_000),
        _ => ">1G".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::process::ProcessKey;
    use gpuwhy_report::state::Live;

    #[test]
    fn columns_fit_and_say_something() {
        let mut ranked = ProcessView::default();
        ranked.live = Some(Live { rank: Some(3), ..Live::default() });
        let elsewhere = ProcessView::new(ProcessKey { host: "node7".to_owned(), process: "1".to_owned() });
        for processes in [&[][..], &[&ranked], &[&ranked, &elsewhere]] {
            for width in [60, 80, 120, 200] {
                let columns = Columns::fitting(width, processes);
                let taken: usize = columns.all().iter().map(|column| column.width + 1).sum();
                assert!(taken + COMMAND <= width, "{width}: {:?}", columns.titles());
                assert_eq!(columns.titles().last().unwrap(), "COMMAND");
                assert_eq!(cells(&columns, &ranked).len(), columns.all().len());
            }
        }
        assert!(Columns::fitting(80, &[]).titles().contains(&"BUSY".to_owned()));
        assert!(!Columns::fitting(80, &[]).titles().contains(&"HOST".to_owned()));
    }

    #[test]
    fn cells_keep_to_their_columns() {
        assert_eq!([9_999, 10_000, 1_234_567, u64::MAX].map(few_letters), ["9999", "10k", "1M", ">1G"]);
        assert_eq!((cut("abcdef", 4), cut("abc", 4)), ("abc~".to_owned(), "abc".to_owned()));
        assert_eq!(cut_inside("programs2.py:15 train, in torch/optim/adam.py", 12), "prog~adam.py");
        assert_eq!((cut_inside("abcd", 4), cut_inside("abcd", 1)), ("abcd".to_owned(), "~".to_owned()));
        assert_eq!(program("/opt/bin/python /a/train.py"), "python /a/train.py");
        assert_eq!((program("./x"), program("")), ("x".to_owned(), String::new()));
        let row = cells(&Columns::fitting(80, &[]), &ProcessView::default());
        assert_eq!(row.last().unwrap(), "-");
    }
}
