//! Sets of what ran, made from slices of one window: what lies on both sides of an execution, and what slices share.
//!
//! ```text
//! BiS     [`both_sides`]   what a critical predicate depended on, and what depended on it
//! FiChop  [`from_input`]   what the input had an influence on, of what the symptom depended on
//! BiChop  [`within`]       those of BiS that are in FiChop
//! ```
//! The original takes the smallest difference of inputs that makes the failure; here all input counts, so FiChop is larger,
//! unless calls say which bytes do ([`crate::window::CallEffects::input`]).
//!
//! May miss: what [`mod@crate::backward`] and [`mod@crate::influence`] miss.
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006, section 4.

use crate::graph::{Node, Slice};
use crate::influence::influenced;
use crate::wants::FastSet;
use crate::window::Window;

/// Where the nodes of a slice are in their window: execution and instruction.
fn executions(slice: &Slice) -> FastSet<(u32, u16)> {
    slice.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect()
}

/// The backward and the forward slice of one execution ([`crate::Criterion::at`]) as one. Distances count from that
/// execution, which has 0 itself, whether back or forth; paths lead to it.
pub fn both_sides(backward: &Slice, forward: &Slice) -> Slice {
    let mut nodes = backward.nodes.clone();
    let known = executions(backward);
    // The execution itself is in both; it is the first node of either.
    let start = u32::from(nodes.len() > 1);
    let mut numbers = vec![0; forward.nodes.len()];
    for (n, node) in forward.nodes.iter().enumerate().skip(1) {
        if known.contains(&(node.execution, node.insn)) {
            numbers[n] = start;
            continue;
        }
        numbers[n] = nodes.len() as u32;
        nodes.push(Node { via: numbers[node.via as usize], ..*node });
    }
    for node in nodes.iter_mut().skip(1) {
        node.distance = node.distance.saturating_sub(1);
    }
    let size = nodes.len().saturating_sub(1) as u64;
    Slice { nodes, size, cut: backward.cut || forward.cut, ..Slice::default() }
}

/// What of a backward slice the input had an influence on; this memory holds input at the window's beginning.
pub fn from_input(
    window: &Window,
    backward: &Slice,
    memory: &[(u64, u64)],
    interrupted: &mut dyn FnMut() -> bool,
) -> Slice {
    let wanted = executions(backward);
    let mut inside = FastSet::default();
    let each = |execution: u32, insn: u16| {
        if wanted.contains(&(execution, insn)) {
            inside.insert((execution, insn));
        }
    };
    let cut = influenced(window, memory, false, each, interrupted);
    let mut chop = restrict(backward, &inside);
    chop.cut |= cut;
    chop
}

/// What two slices of one window have in common: the nodes of the first, with the distances they have there.
pub fn within(slice: &Slice, other: &Slice) -> Slice {
    let mut chop = restrict(slice, &executions(other));
    chop.cut |= other.cut;
    chop
}

fn restrict(slice: &Slice, inside: &FastSet<(u32, u16)>) -> Slice {
    // Paths lead through nodes of the whole slice: each node needs the next one on its way that stays.
    let mut numbers = vec![0; slice.nodes.len()];
    let mut nodes: Vec<Node> = slice.nodes.iter().take(1).copied().collect();
    for (n, node) in slice.nodes.iter().enumerate().skip(1) {
        if inside.contains(&(node.execution, node.insn)) {
            numbers[n] = nodes.len() as u32;
            nodes.push(*node);
        }
    }
    for node in nodes.iter_mut().skip(1) {
        let mut via = node.via;
        while via != 0 && numbers[via as usize] == 0 {
            via = slice.nodes[via as usize].via;
        }
        node.via = numbers[via as usize];
    }
    let size = nodes.len().saturating_sub(1) as u64;
    Slice { nodes, size, cut: slice.cut, ..Slice::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Known, Made};
    use crate::{Criterion, Forward, Options, backward, forward};

    const INPUT: u64 = 0x5000;
    const CONSTANT: u64 = 0x6000;
    const OUTPUT: u64 = 0x7000;

    /// A branch that tests input decides which value is written out; the value is input too.
    const PROGRAM: &str = "8b 06       8b 4e 04    44 8b 17    44 85 d0    75 05";
    //            0x1000 eax=[rsi]  1002 ecx=[rsi+4]  1005 r10=[rdi]  1008 test eax,r10  100b jne 1012
    const ARM: &str = "89 ca 41 89 c9"; // 0x100d edx=ecx; 100f r9=ecx, which nobody needs
    const BEHIND: &str = "bb 07 00 00 00 41 89 10"; // 0x1012 ebx=7; 1017 [r8]=edx
    const BRANCH: (u32, u16) = (0, 4);

    fn window(known: &mut Known) -> Window {
        known.merges.push((0x100b, 0x1012));
        let mut made = Made::default();
        let [before, arm, behind] =
            [(0x1000, PROGRAM), (0x100d, ARM), (0x1012, BEHIND)].map(|(pc, hex)| made.block(pc, hex));
        made.ran(before, &[INPUT, INPUT + 4, CONSTANT]);
        made.ran(arm, &[]);
        made.ran(behind, &[OUTPUT]);
        made.window(known)
    }

    /// Addresses, the nearest first, without their common part.
    fn nearest_first(slice: &Slice) -> Vec<(u64, u32)> {
        let mut all: Vec<_> = slice.nodes.iter().skip(1).map(|n| (n.pc & 0xff, n.distance)).collect();
        all.sort_unstable_by_key(|(pc, distance)| (*distance, *pc));
        all
    }

    fn addresses(slice: &Slice) -> Vec<u64> {
        let mut all: Vec<_> = slice.nodes.iter().skip(1).map(|n| n.pc & 0xff).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_predicate_is_read_from_itself_outwards_within_what_the_input_has_to_do_with() {
        let mut known = Known::default();
        let window = window(&mut known);
        let mut never = || false;
        let wrong = Criterion { memory: vec![(OUTPUT, 4)], ..Criterion::default() };
        let symptom = backward(&window, &wrong, &Options::default(), &mut known, &mut never);
        assert_eq!(addresses(&symptom), [0x00, 0x02, 0x05, 0x08, 0x0b, 0x0d, 0x17]);
        let fichop = from_input(&window, &symptom, &[(INPUT, 8)], &mut never);
        assert_eq!(addresses(&fichop), [0x00, 0x02, 0x08, 0x0b, 0x0d, 0x17]);

        let predicate = Criterion { at: Some(BRANCH), ..Criterion::default() };
        let back = backward(&window, &predicate, &Options::default(), &mut known, &mut never);
        let forth = forward(&window, &predicate, Forward::default(), &mut never);
        let bis = both_sides(&back, &forth);
        assert_eq!(addresses(&bis), [0x00, 0x05, 0x08, 0x0b, 0x0d, 0x0f, 0x17]);
        let bichop = within(&bis, &fichop);
        assert_eq!(nearest_first(&bichop), [(0x0b, 0), (0x08, 1), (0x0d, 1), (0x00, 2), (0x17, 2)]);
    }

    #[test]
    fn paths_lead_to_the_predicate_from_both_sides() {
        let mut known = Known::default();
        let window = window(&mut known);
        let predicate = Criterion { at: Some(BRANCH), ..Criterion::default() };
        let back = backward(&window, &predicate, &Options::default(), &mut known, &mut || false);
        let forth = forward(&window, &predicate, Forward::default(), &mut || false);
        let bis = both_sides(&back, &forth);
        let way = |pc: u64| -> Vec<u64> {
            let node = bis.nodes.iter().position(|n| n.pc == pc).expect("it is there") as u32;
            bis.path(node).into_iter().filter(|n| *n != 0).map(|n| bis.nodes[n as usize].pc & 0xff).collect()
        };
        assert_eq!(way(0x1000), [0x00, 0x08, 0x0b]);
        assert_eq!(way(0x1017), [0x17, 0x0d, 0x0b]);
    }

    #[test]
    fn a_forward_slice_of_one_execution_leaves_out_what_others_of_the_instruction_did() {
        let mut known = Known::default();
        // mov [rdi], eax, three times
        let mut made = Made::default();
        let store = made.block(0x1000, "89 07");
        [0x5000, 0x6000, 0x7000].iter().for_each(|at| made.ran(store, &[*at]));
        let window = made.window(&mut known);
        let second = Criterion { at: Some((1, 0)), ..Criterion::default() };
        let found = forward(&window, &second, Forward::default(), &mut || false);
        let where_ran: Vec<u32> = found.nodes.iter().skip(1).map(|n| n.execution).collect();
        assert_eq!(where_ran, [1]);
    }

    #[test]
    fn the_shortest_way_forward_is_kept() {
        let mut known = Known::default();
        let mut made = Made::default();
        // mov eax,[rsi]; mov ecx,eax; mov edx,ecx; add edx,eax: the last one uses both, and eax is nearer.
        let block = made.block(0x1000, "8b 06 89 c1 89 ca 01 c2");
        made.ran(block, &[INPUT]);
        let window = made.window(&mut known);
        let input = Criterion { memory: vec![(INPUT, 4)], ..Criterion::default() };
        let found = forward(&window, &input, Forward::default(), &mut || false);
        assert_eq!(nearest_first(&found), [(0x00, 1), (0x02, 2), (0x06, 2), (0x04, 3)]);
    }
}
