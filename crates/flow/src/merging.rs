//! Where control comes together again: post-dominators of a function's blocks, also where loops have no exit.
//!
//! Post-dominators need every node to reach an exit. A loop that is never left gets an artificial one (as Ball and
//! Horwitz do, "Slicing Programs with Arbitrary Control Flow", 1993): a node that stands for "the iteration is over",
//! through which all edges back to the loop's first block go, and which leads to that block and to the exit. So branches
//! inside an iteration merge at the latest where the next iteration begins, as they do in ordinary loops.
//!
//! There are two views. *Strict*: calls that never return are exits, so that what follows `if (bad) abort();` depends on
//! the `if`. *Lenient*: code from which nothing but such calls can be reached is left out, so that it does not.

use crate::dominators::{Graph, post_dominators};

/// How control leaves the graph at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    No,
    Returning,
    NeverReturning,
}

/// Where the ways out of a node meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    Node(u32),
    Exit,
    Never,
}

/// For each node, the meeting in both views.
#[derive(Clone, Debug)]
pub struct Meetings {
    pub strict: Vec<Meeting>,
    pub lenient: Vec<Meeting>,
}

/// `roots` are where control enters, the entry first. Every node must be reachable from them.
pub fn meetings(successors: &[Vec<u32>], leaves: &[Leaves], roots: &[u32]) -> Meetings {
    let rank = first_visits(successors, roots);
    let exits = |which: &[Leaves]| leaves.iter().map(|l| which.contains(l)).collect();
    let all = Graph { successors: successors.to_vec(), exits: exits(&[Leaves::Returning, Leaves::NeverReturning]) };
    let strict = closed_meetings(all, &rank);
    let mut returning = Graph { successors: successors.to_vec(), exits: exits(&[Leaves::Returning]) };
    let dead = remove_dead_ends(&mut returning);
    let mut lenient = closed_meetings(returning, &rank);
    for (node, dead) in dead.iter().enumerate() {
        if *dead {
            lenient[node] = strict[node];
        }
    }
    Meetings { strict, lenient }
}

/// Meetings of a graph in which every node has a successor or is an exit; others get `Never`.
fn closed_meetings(mut graph: Graph, rank: &[u32]) -> Vec<Meeting> {
    let real = graph.len();
    let reaches = reaching_exit(&graph);
    let headers = close_endless_loops(&mut graph, &reaches, rank);
    let tree = post_dominators(&graph);
    let exit = graph.exit();
    let meeting = |node: usize| match tree[node] {
        Some(n) if n == exit && reaches[node] => Meeting::Exit,
        None => Meeting::Never,
        Some(n) if n == exit => Meeting::Never,
        Some(n) if (n as usize) < real => Meeting::Node(n),
        Some(n) => Meeting::Node(headers[n as usize - real]),
    };
    (0..real).map(meeting).collect()
}

/// For each node, when a depth-first walk from the roots first meets it.
fn first_visits(successors: &[Vec<u32>], roots: &[u32]) -> Vec<u32> {
    let mut rank = vec![u32::MAX; successors.len()];
    let mut next = 0;
    for root in roots {
        let mut stack = vec![*root];
        while let Some(node) = stack.pop() {
            if rank[node as usize] == u32::MAX {
                rank[node as usize] = next;
                next += 1;
                stack.extend(successors[node as usize].iter().rev());
            }
        }
    }
    rank
}

fn reaching_exit(graph: &Graph) -> Vec<bool> {
    let predecessors = graph.predecessors();
    let mut reaches = graph.exits.clone();
    let mut work: Vec<usize> = (0..graph.len()).filter(|n| reaches[*n]).collect();
    while let Some(node) = work.pop() {
        for before in &predecessors[node] {
            if !std::mem::replace(&mut reaches[*before as usize], true) {
                work.push(*before as usize);
            }
        }
    }
    reaches
}

/// Takes out nodes from which every way ends at a node that neither goes on nor is an exit; says which.
fn remove_dead_ends(graph: &mut Graph) -> Vec<bool> {
    let predecessors = graph.predecessors();
    let mut ways: Vec<usize> = graph.successors.iter().map(Vec::len).collect();
    let mut dead = vec![false; graph.len()];
    let mut work: Vec<usize> = (0..graph.len()).filter(|n| ways[*n] == 0 && !graph.exits[*n]).collect();
    while let Some(node) = work.pop() {
        dead[node] = true;
        for before in &predecessors[node] {
            let before = *before as usize;
            ways[before] -= 1;
            if ways[before] == 0 && !graph.exits[before] {
                work.push(before);
            }
        }
    }
    for successors in &mut graph.successors {
        successors.retain(|s| !dead[*s as usize]);
    }
    dead
}

/// Adds a node per loop that nothing leaves. Gives the first block of the loop for each, in their order.
fn close_endless_loops(graph: &mut Graph, reaches: &[bool], rank: &[u32]) -> Vec<u32> {
    let real = graph.len();
    let mut headers = Vec::new();
    for component in final_components(graph, reaches) {
        let Some(header) = component.iter().copied().min_by_key(|n| rank[*n as usize]) else { continue };
        let over = (real + headers.len()) as u32;
        let mut back_edges = false;
        for node in &component {
            for to in graph.successors[*node as usize].iter_mut().filter(|to| **to == header) {
                *to = over;
                back_edges = true;
            }
        }
        if back_edges {
            graph.successors.push(vec![header]);
            graph.exits.push(true);
            headers.push(header);
        }
    }
    headers
}

/// Strongly connected components without a way out, among nodes that do not reach an exit (Tarjan 1972).
fn final_components(graph: &Graph, reaches: &[bool]) -> Vec<Vec<u32>> {
    let mut walk = Tarjan {
        index: vec![u32::MAX; graph.len()],
        low: vec![0; graph.len()],
        component: vec![u32::MAX; graph.len()],
        path: Vec::new(),
        found: Vec::new(),
        next: 0,
    };
    for node in 0..graph.len() as u32 {
        if !reaches[node as usize] && walk.index[node as usize] == u32::MAX {
            walk.from(graph, node);
        }
    }
    let Tarjan { component, found, .. } = walk;
    let stays = |members: &Vec<u32>| {
        let home = members.first().map(|m| component[*m as usize]);
        let ways = members.iter().flat_map(|m| &graph.successors[*m as usize]);
        ways.clone().next().is_some() && ways.clone().all(|to| Some(component[*to as usize]) == home)
    };
    found.into_iter().filter(stays).collect()
}

struct Tarjan {
    index: Vec<u32>,
    low: Vec<u32>,
    component: Vec<u32>,
    path: Vec<u32>,
    found: Vec<Vec<u32>>,
    next: u32,
}

impl Tarjan {
    fn enter(&mut self, node: u32) {
        self.index[node as usize] = self.next;
        self.low[node as usize] = self.next;
        self.next += 1;
        self.path.push(node);
    }

    /// Nodes that do not reach an exit have only such successors, so the walk stays among them.
    fn from(&mut self, graph: &Graph, root: u32) {
        self.enter(root);
        let mut stack = vec![(root, 0)];
        while let Some((node, next)) = stack.last_mut() {
            let node = *node;
            if let Some(to) = graph.successors[node as usize].get(*next).copied() {
                *next += 1;
                if self.index[to as usize] == u32::MAX {
                    self.enter(to);
                    stack.push((to, 0));
                } else if self.component[to as usize] == u32::MAX {
                    self.low[node as usize] = self.low[node as usize].min(self.index[to as usize]);
                }
                continue;
            }
            stack.pop();
            if let Some((above, _)) = stack.last() {
                self.low[*above as usize] = self.low[*above as usize].min(self.low[node as usize]);
            }
            if self.low[node as usize] == self.index[node as usize] {
                self.close(node);
            }
        }
    }

    fn close(&mut self, root: u32) {
        let from = self.path.iter().rposition(|n| *n == root).unwrap_or(0);
        let members = self.path.split_off(from);
        for member in &members {
            self.component[*member as usize] = self.found.len() as u32;
        }
        self.found.push(members);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// SplitMix64, so that a failing seed stays one.
    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |bound| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % bound
        }
    }

    /// Up to 12 nodes with up to 3 successors each, some of them exits.
    pub fn random_graph(seed: u64) -> Graph {
        let mut below = random(seed);
        let nodes = 1 + below(12);
        let successors = (0..nodes).map(|_| (0..below(4)).map(|_| below(nodes) as u32).collect()).collect();
        let exits = (0..nodes).map(|_| below(4) == 0).collect();
        Graph { successors, exits }
    }

    /// Nodes that can be reached from `from` over at least one edge without passing through `without`.
    fn reachable(successors: &[Vec<u32>], from: u32, without: Option<u32>) -> Vec<bool> {
        let mut seen = vec![false; successors.len()];
        let mut work = successors[from as usize].clone();
        while let Some(node) = work.pop() {
            if Some(node) != without && !std::mem::replace(&mut seen[node as usize], true) {
                work.extend(&successors[node as usize]);
            }
        }
        seen
    }

    #[test]
    fn no_way_from_a_node_to_an_exit_misses_its_meeting() {
        for seed in 0..3_000 {
            let Graph { successors, exits } = random_graph(seed);
            let leaves: Vec<Leaves> = exits.iter().map(|e| if *e { Leaves::Returning } else { Leaves::No }).collect();
            let roots: Vec<u32> = (0..successors.len() as u32).collect();
            let found = meetings(&successors, &leaves, &roots).strict;
            for node in 0..successors.len() as u32 {
                let exit_without = |without| {
                    exits[node as usize]
                        || reachable(&successors, node, without).iter().zip(&exits).any(|(r, e)| *r && *e)
                };
                match found[node as usize] {
                    Meeting::Node(at) => {
                        assert!(!exit_without(Some(at)), "seed {seed}: {node} leaves without passing {at}");
                        assert!(reachable(&successors, node, None)[at as usize], "seed {seed}: {node} misses {at}");
                    }
                    Meeting::Exit => assert!(exit_without(None), "seed {seed}: {node} does not leave"),
                    Meeting::Never => assert!(!exit_without(None), "seed {seed}: {node} does leave"),
                }
            }
        }
    }

    /// Edges by node; `r` marks a returning exit, `n` one that never returns. Expected: `strict/lenient` per node.
    fn check_meetings(graph: &[(&[u32], char)], expected: &str) {
        let successors: Vec<Vec<u32>> = graph.iter().map(|(s, _)| s.to_vec()).collect();
        let leaves: Vec<Leaves> = graph
            .iter()
            .map(|(_, l)| match l {
                'r' => Leaves::Returning,
                'n' => Leaves::NeverReturning,
                _ => Leaves::No,
            })
            .collect();
        let Meetings { strict, lenient } = meetings(&successors, &leaves, &[0]);
        let text = |m: &Meeting| match m {
            Meeting::Node(n) => n.to_string(),
            Meeting::Exit => "X".to_owned(),
            Meeting::Never => "-".to_owned(),
        };
        let got: Vec<String> = strict.iter().zip(&lenient).map(|(s, l)| format!("{}/{}", text(s), text(l))).collect();
        assert_eq!(got.join(" "), expected);
    }

    #[test]
    fn both_sides_of_an_if_meet_behind_it() {
        check_meetings(&[(&[1, 2], ' '), (&[3], ' '), (&[3], ' '), (&[], 'r')], "3/3 3/3 3/3 X/X");
    }

    #[test]
    fn a_side_that_never_returns_counts_only_in_the_strict_view() {
        check_meetings(&[(&[1, 2], ' '), (&[], 'n'), (&[], 'r')], "X/2 X/X X/X");
    }

    #[test]
    fn iterations_of_an_endless_loop_meet_where_the_next_begins() {
        // 1 is the loop's first block, 2 and 3 go back to it.
        check_meetings(&[(&[1], ' '), (&[2, 3], ' '), (&[1], ' '), (&[1], ' ')], "1/1 1/1 1/1 1/1");
        // The same with one place to go back from.
        check_meetings(&[(&[1, 2], ' '), (&[2], ' '), (&[0], ' ')], "2/2 2/2 0/0");
    }

    #[test]
    fn two_endless_loops_never_meet() {
        check_meetings(&[(&[1, 2], ' '), (&[1], ' '), (&[2], ' ')], "-/- 1/1 2/2");
    }

    #[test]
    fn an_endless_loop_that_may_abort_is_endless_in_the_lenient_view() {
        // Strictly the abort is the loop's exit, where all ways out lead.
        check_meetings(&[(&[1, 2], ' '), (&[], 'n'), (&[0], ' ')], "1/2 X/X 0/0");
    }

    #[test]
    fn code_that_only_aborts_merges_as_in_the_strict_view() {
        check_meetings(&[(&[1, 2], ' '), (&[3], ' '), (&[3], ' '), (&[], 'n')], "3/3 3/3 3/3 X/X");
    }
}
