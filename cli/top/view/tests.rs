//! Pictures of the display at three sizes, compared with files; `GPUWHY_BLESS=1` writes them.

use std::path::Path;
use std::{env, fs};

use profiler_core::leaf::Cause;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, json};

use super::appearance::letter;
use super::*;
use crate::top::dashboard::Update;
use crate::top::process::ProcessKey;
use crate::top::source::SourceEvent;

const PLAIN: Appearance = Appearance { color: false, unicode: true };
/// Causes in the order in which a process lists them.
const CAUSES: [&str; 10] = [
    "data_loading",
    "host_cpu",
    "copy",
    "launch",
    "gpu_compute",
    "sync",
    "communication",
    "allocator",
    "no_work",
    "cannot_tell",
];

/// Response after `seconds` of a run whose causes change half-way.
fn answer(pid: u64, seconds: u64) -> Value {
    let window = |second: u64| {
        let late = second > seconds / 2;
        let [host, launch, compute] = if late { [100_000, 200_000, 700_000] } else { [90_000, 610_000, 300_000] };
        json!([second * 1_000_000_000, 0, host, 0, launch, compute, 0, 0, 0, 0, 0])
    };
    let newest = seconds.saturating_sub(60);
    let windows: Vec<_> = (newest + 1..=seconds).map(window).collect();
    let nanos = seconds * 1_000_000_000;
    json!({
        "type": "live", "pid": pid, "command": "/opt/venv/bin/python train.py --batch 64", "state": "capturing",
        "captures": 1, "bottleneck": "launch", "share": 0.58, "line": "gpuwhy [90.0 s] step 4.9 ms", "kernels": 54_081,
        "lost": 0, "trace": "/tmp/gpuwhy-4711.gpuwhy", "host": "node1", "rank": null, "mode": "light",
        "observed_ns": nanos, "starting_up": false, "live_bottleneck": "launch", "live_share": 0.614, "best_case": 3.82,
        "best_case_low": 3.3, "best_case_high": 4.0, "busy": 0.381, "cost": 0.0163, "causes": CAUSES,
        "steps": {"noun": "step", "seen": 174, "median_ns": 4_912_345, "newest_ns": [4_900_000, 5_300_000, 4_850_000]},
        "evidence": [
            "The GPU waits for the next launch 58 % of every step (2.6 of 4.5 ms).",
            "A kernel runs for 2.4 us on average, and the GPU waits 9.5 us for each launch.",
            "100 % of the launches are the same in every step, so a CUDA graph fits (it needs 98 %).",
        ],
        "missing": [],
        "advice": "Capture the step in a CUDA graph: torch.compile(model, mode=\"reduce-overhead\") or \
                   torch.cuda.graph(). Tensor addresses must stay the same too.",
        "devices": [{"id": 0, "name": "NVIDIA H200", "window_ns": nanos, "windows": windows}], "devices_beyond": 0,
        "top_kernels": [
            {"name": "void at::native::vectorized_elementwise_kernel<4>", "count": 4_000 * seconds, "total_ns": nanos / 5},
            {"name": "nvjet_sm90_tst_128x64", "count": 1_000 * seconds, "total_ns": nanos / 3},
        ],
        "memory": [{"id": 0, "used_bytes": 61_000_000_000_u64, "total_bytes": 80_000_000_000_u64}],
        "lines": [{"file": "/home/me/train.py", "line": 88, "function": "augment", "total_ns": nanos / 20}],
        "ranges": [{"domain": "", "name": "forward", "count": seconds, "device_ns": nanos / 4}],
    })
}

fn take(dashboard: &mut Dashboard, host: &str, process: &str, answer: Value) {
    let key = ProcessKey { host: host.to_owned(), process: process.to_owned() };
    dashboard.take(SourceEvent::Answer(key, Box::new(answer)).into_update().unwrap());
}

/// Three processes: one of a minute and a half, one that has ended, one with an old library.
fn dashboard() -> Dashboard {
    let mut dashboard = Dashboard::new("this host".to_owned(), false);
    take(&mut dashboard, "", "4711", answer(4711, 80));
    take(&mut dashboard, "", "4711", answer(4711, 90));
    take(&mut dashboard, "", "4712", answer(4712, 20));
    dashboard.take(Update::Ended(ProcessKey { host: String::new(), process: "4712".to_owned() }));
    let old = json!({"pid": 9, "command": "./simulate", "state": "waiting", "bottleneck": "no_work", "lost": 12_345,
                     "line": "gpuwhy [1.0 s] no GPU work yet"});
    take(&mut dashboard, "", "9", old);
    dashboard
}

fn press(dashboard: &mut Dashboard, keys: &[KeyCode]) {
    keys.iter().for_each(|&key| drop(dashboard.key(KeyEvent::from(key))));
}

fn drawn(dashboard: &Dashboard, (width, height): (u16, u16), appearance: Appearance) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, dashboard, appearance)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let rows = (0..buffer.area.height).map(|y| {
        let row: String = (0..buffer.area.width).map(|x| buffer.cell((x, y)).unwrap().symbol()).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

#[track_caller]
fn compare(name: &str, dashboard: &Dashboard, size: (u16, u16)) {
    let drawn = text(&drawn(dashboard, size, PLAIN));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("cli/top/view/pictures/{name}.txt"));
    if env::var_os("GPUWHY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &drawn).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == expected, "{} differs:\n{drawn}", path.display());
}

#[test]
fn the_display_at_three_sizes() {
    let mut dashboard = dashboard();
    press(&mut dashboard, &[KeyCode::Down]);
    compare("80x24", &dashboard, (80, 24));
    compare("120x40", &dashboard, (120, 40));
    compare("200x60", &dashboard, (200, 60));
    press(&mut dashboard, &[KeyCode::Tab]);
    compare("80x24-lines", &dashboard, (80, 24));
}

#[test]
fn processes_that_say_little_and_none_at_all() {
    let mut dashboard = dashboard();
    press(&mut dashboard, &[KeyCode::Up]);
    compare("old-library", &dashboard, (80, 24));
    press(&mut dashboard, &[KeyCode::Char('?')]);
    compare("help", &dashboard, (100, 30));
    let help = include_str!("pictures/help.txt");
    for cause in Cause::ALL {
        assert!(help.contains(&format!("{}  ", letter(cause))), "{cause:?}");
    }
    compare("none", &Dashboard::new("this host".to_owned(), false), (80, 24));
}

#[test]
fn hosts_ranks_and_gpus_have_their_columns() {
    let mut dashboard = Dashboard::new("node1, node2".to_owned(), false);
    for rank in 0..4 {
        let mut answer = answer(100 + rank, 61);
        answer["rank"] = rank.into();
        let device = answer["devices"][0].clone();
        answer["devices"].as_array_mut().unwrap().push(device);
        answer["devices"][1]["id"] = 1.into();
        answer["missing"] = json!(["32 records were dropped by CUPTI."]);
        take(&mut dashboard, if rank < 2 { "node1" } else { "node2" }, &(100 + rank).to_string(), answer);
    }
    dashboard.take(Update::Unreachable("node3".to_owned(), "exit status: 255: ssh: no route to host".to_owned()));
    press(&mut dashboard, &[KeyCode::Down, KeyCode::Char('g'), KeyCode::Char('s')]);
    compare("ranks", &dashboard, (120, 40));
}

#[test]
fn every_size_and_every_state_is_drawn() {
    let mut dashboard = dashboard();
    let sizes = [(1, 1), (39, 9), (40, 10), (41, 11), (60, 15), (80, 24), (133, 17), (300, 100), (500, 12)];
    for keys in [&[][..], &[KeyCode::Down], &[KeyCode::Down], &[KeyCode::Char('?')], &[KeyCode::End]] {
        press(&mut dashboard, keys);
        sizes.iter().for_each(|&size| drop(drawn(&dashboard, size, PLAIN)));
    }
    let small = text(&drawn(&dashboard, (39, 9), PLAIN));
    assert!(small.starts_with("the terminal is too small: 80x24 is eno"), "{small}");
}

#[test]
fn bursts_of_mode_auto_are_counted_in_the_title() {
    let mut dashboard = Dashboard::new("x".to_owned(), false);
    let mut answer = answer(1, 90);
    (answer["mode"], answer["bursts"], answer["captures"]) = ("auto".into(), 2.into(), 3.into());
    take(&mut dashboard, "node1", "1", answer);
    let text = text(&drawn(&dashboard, (120, 40), PLAIN));
    assert!(text.contains("mode auto, 2 bursts") && !text.contains("capture 3"), "{text}");
}

#[test]
fn names_cannot_control_the_terminal_or_leave_their_place() {
    let mut dashboard = Dashboard::new("x".to_owned(), false);
    let hostile = "\u{1b}[2J\u{202e}\r\n\u{9b}31m</script>日本語".repeat(500);
    let mut answer = answer(1, 90);
    for name in ["command", "advice", "host", "mode", "state", "bottleneck", "live_bottleneck"] {
        answer[name] = hostile.clone().into();
    }
    answer["evidence"] = json!([hostile, hostile]);
    answer["top_kernels"][0]["name"] = hostile.clone().into();
    answer["lines"][0]["file"] = hostile.clone().into();
    answer["trace"] = hostile.clone().into();
    take(&mut dashboard, &gpuwhy_report::state::sanitized(&hostile), "1", answer);
    for size in [(80, 24), (200, 60)] {
        let text = text(&drawn(&dashboard, size, PLAIN));
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        assert!(!text.contains('\u{202e}'), "{text:?}");
    }
}

#[test]
fn without_colors_nothing_is_colored_and_with_them_only_sixteen_are_used() {
    use ratatui::style::Color;
    let dashboard = dashboard();
    let colors = |appearance| {
        let buffer = drawn(&dashboard, (120, 40), appearance);
        let all: Vec<Color> = buffer.content().iter().flat_map(|cell| [cell.fg, cell.bg]).collect();
        all
    };
    assert!(colors(PLAIN).iter().all(|&color| color == Color::Reset));
    let colored = colors(Appearance { color: true, unicode: true });
    assert!(colored.iter().any(|&color| color != Color::Reset));
    assert!(!colored.iter().any(|color| matches!(color, Color::Rgb(..) | Color::Indexed(_))));
    let ascii = text(&drawn(&dashboard, (120, 40), Appearance { color: false, unicode: false }));
    assert!(ascii.is_ascii(), "{ascii}");
}
