//! Parser for history lines: what their types do not derive.

use std::collections::BTreeMap;

use profiler_core::leaf::Cause;
use serde::{Deserialize as _, Deserializer};

use super::{LineVersion, MOST_DURATIONS, VERSION};

impl TryFrom<u64> for LineVersion {
    type Error = String;

    fn try_from(found: u64) -> Result<Self, String> {
        if found == VERSION {
            Ok(Self)
        } else {
            Err(format!("its format has version {found}; this gpuwhy reads version {VERSION}"))
        }
    }
}

/// Unknown causes of a later version are ignored.
pub(super) fn causes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(Cause, u64)>, D::Error> {
    let all = BTreeMap::<String, u64>::deserialize(from)?;
    let known = |name: &str| Cause::ALL.into_iter().find(|cause| cause.name() == name);
    Ok(all.iter().filter_map(|(name, &ns)| Some((known(name)?, ns))).collect())
}

pub(super) fn durations<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let mut all = Vec::deserialize(from)?;
    all.truncate(MOST_DURATIONS);
    Ok(all)
}
