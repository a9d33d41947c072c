//! Where the operations of CUDA graphs were captured, as texts.

use gpuwhy_report::launch_site::LaunchSite;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use profiler_core::attribution::{GraphNodes, LaunchPlace};
use rustc_hash::FxHashMap;

/// The place that captured an operation.
#[derive(Debug)]
pub struct Captured {
    /// `model.py:38 in Block.forward`, with the path of the file.
    pub at: String,
    /// Class of the innermost module whose `forward` was running.
    pub module: Option<String>,
    /// Class of the module that called it.
    pub parent: Option<String>,
    /// Operators of compiled code.
    pub operators: Option<String>,
}

impl Captured {
    fn of(place: &LaunchPlace, dictionary: &Dictionary) -> Self {
        let site = LaunchSite::of(place, dictionary);
        let operators = site.operators();
        let LaunchSite { file, line, function, module, parent, .. } = site;
        let file = if line == 0 { file } else { format!("{file}:{line}") };
        Self { at: format!("{file} in {function}"), module, parent, operators }
    }

    /// The texts that are known, with their names.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let named = [
            ("captured at", Some(&self.at)),
            ("module", self.module.as_ref()),
            ("parent", self.parent.as_ref()),
            ("operators", self.operators.as_ref()),
        ];
        named.into_iter().filter_map(|(name, text)| Some((name, text?.as_str())))
    }
}

/// Origins of the operations of CUDA graphs: those of the report.
#[derive(Debug, Default)]
pub struct CapturedPlaces {
    nodes: GraphNodes,
    texts: FxHashMap<LaunchPlace, Captured>,
}

impl CapturedPlaces {
    /// Takes an event of the trace, in its order.
    pub fn take(&mut self, event: &Event, dictionary: &Dictionary) {
        if let Event::GraphNode(node) = event {
            self.nodes.push(node, None, dictionary);
        }
    }

    /// Origin of an operation by the node that its record names; `None` if it is unknown, or outside graphs.
    pub fn get(&mut self, node: u64, dictionary: &Dictionary) -> Option<&Captured> {
        let place = self.nodes.place(node)?;
        Some(self.texts.entry(*place).or_insert_with(|| Captured::of(place, dictionary)))
    }
}
