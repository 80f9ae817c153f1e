//! Lines that no trial speaks for: around a proved cause, on the stack, and in the slice.

use super::places::Places;
use super::rank::Candidate;
use super::symptom::Symptom;
use crate::case::Case;
use crate::slice::lines::{self, Squash};
use diagnose::Failure;
use diagnose::order::{self, Influence};
use report::{Place, SliceLine};
use std::collections::HashSet;

/// Dependences back from a proved cause that lead to its values: some statements, each of a few instructions.
const BACK: u32 = 12;

/// A line around a proved cause.
pub struct Beside {
    pub place: Place,
    pub node: Option<u32>,
    pub towards: bool,
}

/// Lines around the best cause: what its values come from, and what it leads to, in turn.
pub fn around(
    candidates: &[Candidate<'_>],
    symptom: Option<&Symptom>,
    places: &mut Places<'_>,
    squash: Option<&mut Squash<'_>>,
) -> Vec<Beside> {
    let (Some(s), Some(squash), Some(best)) = (symptom, squash, candidates.first()) else { return Vec::new() };
    let mut shown = |nodes: Vec<slice::Node>, numbers: Option<Vec<u32>>, towards: bool| {
        let mut list: Vec<Beside> = Vec::new();
        for (n, at) in nodes.iter().enumerate() {
            let Some((_, pc)) = squash.shown(at, &mut places.origins) else { continue };
            if places.origins.is_opening(pc) {
                continue;
            }
            let place = places.of(pc);
            if place.source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
                continue;
            }
            if place.key() != best.place.key() && list.iter().all(|b| b.place.key() != place.key()) {
                list.push(Beside { place, node: numbers.as_ref().map(|l| l[n]), towards });
            }
        }
        list
    };
    let way = best.node.map(|node| s.slice.path(node)).unwrap_or_default();
    let way: Vec<u32> = way.into_iter().skip(1).filter(|n| *n != 0).collect();
    let forth = shown(way.iter().map(|n| s.slice.nodes[*n as usize]).collect(), Some(way), true);
    let Some(at) = best.at else { return forth };
    let criterion = slice::Criterion { at: Some(at), ..slice::Criterion::default() };
    let how = slice::Options { data_only: true, depth: BACK, ..slice::Options::default() };
    let made = slice::backward(&s.window, &criterion, &how, &mut slice::NoFacts, &mut || false);
    let mut made: Vec<slice::Node> = made.nodes.into_iter().skip(1).collect();
    made.sort_by_key(|n| (n.distance, std::cmp::Reverse(n.execution)));
    let back = shown(made, None, false);
    // A wrong number only travels on.
    if best.told { back } else { order::interleave(back, forth, 1) }
}

/// Own lines of these calls, each once.
pub fn callers(stack: &[u64], places: &mut Places<'_>) -> Vec<Place> {
    let mut list: Vec<Place> = Vec::new();
    for pc in stack {
        if places.is_own(*pc) {
            let place = places.of(*pc);
            if list.iter().all(|p| p.key() != place.key()) {
                list.push(place);
            }
        }
    }
    list
}

/// Own lines of the slice with their nearest nodes.
pub fn slice_lines(
    case: &Case<'_>,
    symptom: &Symptom,
    places: &mut Places<'_>,
    squash: &mut Squash<'_>,
) -> Vec<(SliceLine, u32)> {
    let died = match case.failing.failure {
        Failure::Crash { pc, .. } => Some(pc),
        _ => None,
    };
    let none = HashSet::new();
    let found = lines::gather(&symptom.window, &symptom.slice, &none, died, &mut places.origins, squash);
    let mut all = Vec::new();
    for line in found.list.iter().filter(|l| l.origin.own) {
        let node = line.node;
        let source = places.source(&line.origin);
        // A brace is where a function sets up its frame; nobody learns anything from it.
        let blank = source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric));
        if blank || places.origins.is_opening(symptom.slice.nodes[node as usize].pc) {
            continue;
        }
        let place = Place {
            file: line.origin.file.as_ref().map(|f| f.display().to_string()),
            full: line.origin.full.as_ref().map(|f| f.display().to_string()),
            line: line.origin.line,
            function: line.origin.function.clone(),
            address: line.origin.address.clone(),
            source,
        };
        let shown = SliceLine { place, distance: line.distance, instances: line.instances, executed: line.executed };
        all.push((shown, node));
    }
    all.sort_by_key(|(line, node)| {
        // Whether bytes of the input or decisions about them led there makes no difference to a statement.
        let node = &symptom.slice.nodes[*node as usize];
        let influence = symptom.influence(node.execution).max(Influence::Control);
        let vouched = symptom.vouched.is_value(node.execution, node.insn);
        order::weight(line.distance, line.executed, influence) + order::vouched(vouched)
    });
    all
}
