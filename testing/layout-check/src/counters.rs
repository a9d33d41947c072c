//! The counter interfaces of a library, on a host without a GPU.

use std::error::Error;

use cupti_sys::counters::Counters;
use cupti_sys::counters::host::{Collection, Host, MetricKind};
use cupti_sys::counters::range::RangePlan;
use cupti_sys::counters::sets::{self, Links};
use cupti_sys::{Cupti, Search};

/// Prints the functions that the library lacks, its chips, and the set of each chip with its links and
/// quantities.
pub fn describe(path: &str) -> Result<(), Box<dyn Error>> {
    let cupti = Cupti::load_without_driver(&Search { override_path: Some(path.into()), ..Search::default() })?;
    let counters = Counters::of(cupti);
    println!("missing {}", counters.functions().missing().join(" "));
    if let Some((path, problem)) = counters.missing_library() {
        println!("library {}: {problem}", path.display());
    }
    if !counters.can_sample() {
        return Ok(());
    }
    let chips = counters.supported_chips()?;
    println!("chips {}", chips.join(" "));
    for chip in &chips {
        let links = Links { pcie: true, nvlink: false, engine: false };
        let keys = [
            ("chip", Links { pcie: false, ..links }),
            ("pcie", links),
            ("nvlink", Links { nvlink: true, ..links }),
            ("engine", Links { engine: true, ..links }),
        ];
        for (key, links) in keys {
            match sets::choose(counters, chip, links) {
                Ok(Some(set)) => {
                    let quantities: Vec<_> = set.quantities.iter().map(|quantity| format!("{quantity:?}")).collect();
                    println!("set.{chip}.{key} {}", quantities.join(" "));
                }
                Ok(None) => println!("set.{chip}.{key} none"),
                Err(error) => println!("set.{chip}.{key} {error}"),
            }
        }
    }
    if chips.iter().any(|chip| chip == "GH100") {
        let host = Host::open(counters, Collection::Ranges, "GH100", None)?;
        let counted = host.base_metrics(MetricKind::Counter)?;
        println!("metrics {} {}", counted.len(), counted.iter().any(|name| name == "sm__cycles_active"));
        let properties = host.properties("gpu__time_duration.sum")?;
        println!("duration {} {}", properties.hardware, properties.unit);
        println!("unknown {}", host.properties("there_is_no_such_metric.sum").is_err());
        let catalog = host.catalog()?;
        let refused = |(name, kind): (&String, &MetricKind)| {
            let names = kind.suffixes().into_iter().map(move |suffix| format!("{name}{suffix}"));
            names.filter(|name| host.properties(name).is_err()).count()
        };
        println!("suffixes.refused {}", catalog.0.iter().map(refused).sum::<usize>());
    }
    Ok(())
}

/// Prints the number of launches that each group of metrics takes on a chip, and the metrics that the chip
/// does not have.
pub fn describe_ranges(path: &str, chip: &str, groups: &[String]) -> Result<(), Box<dyn Error>> {
    let cupti = Cupti::load_without_driver(&Search { override_path: Some(path.into()), ..Search::default() })?;
    let groups: Vec<Vec<String>> = groups.iter().map(|group| group.split(',').map(str::to_owned).collect()).collect();
    let plan = RangePlan::new(Counters::of(cupti), chip, &groups)?;
    let passes: Vec<_> = (0..plan.groups()).map(|group| plan.passes(group).to_string()).collect();
    println!("passes {}", passes.join(" "));
    println!("missing {}", plan.missing().join(" "));
    Ok(())
}
