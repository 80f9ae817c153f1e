//! Branches that go one way for good.
//!
//! What one execution cannot repair because the same mistake is made each time may be repaired by all of them together. That is many
//! changes at once, so it is tried only where no single one is enough.
//! Source: ours, beyond predicate switching, which changes one execution.

use crate::case::Branches;
use diagnose::order::Known;
use diagnose::{Change, Trial};
use model::serve::Moment;
use std::collections::HashMap;

/// Branches that go one way for good, from their first execution on: the way they did not always go.
pub fn trials(found: &Branches, known: &[Known]) -> Vec<Trial> {
    struct Site {
        first: Moment,
        distance: u32,
        taken: bool,
        passed: bool,
        times: u64,
    }
    let mut sites: HashMap<u64, Site> = HashMap::new();
    for (p, k) in found.list.iter().zip(known) {
        let new = Site { first: p.moment, distance: u32::MAX, taken: false, passed: false, times: 0 };
        let site = sites.entry(p.moment.pc).or_insert(new);
        site.distance = site.distance.min(k.distance.unwrap_or(u32::MAX));
        site.taken |= p.taken;
        site.passed |= !p.taken;
        site.times += 1;
    }
    // Once is what a flip does. Those that the symptom is not known to depend on are last: what stores through
    // pointers might have done is not known.
    let mut list: Vec<Site> = sites.into_values().filter(|s| s.times > 1).collect();
    list.sort_by_key(|s| (s.distance, s.first));
    let ways = |s: &Site| {
        let way = |taken: bool| Trial { moment: s.first, change: Change::Force(taken) };
        [s.passed.then(|| way(true)), s.taken.then(|| way(false))]
    };
    list.iter().flat_map(ways).flatten().collect()
}
