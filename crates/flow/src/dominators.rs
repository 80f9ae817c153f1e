//! Post-dominators of a graph of numbered nodes.
//!
//! Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on the reversed graph with a virtual exit.
//! Only nodes that reach an exit have an answer; [`crate::merging`] sees to it that all do.

/// Nodes and edges; `exits` marks the nodes from which control leaves the graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub successors: Vec<Vec<u32>>,
    pub exits: Vec<bool>,
}

impl Graph {
    pub fn len(&self) -> usize {
        self.successors.len()
    }

    /// The number that stands for the virtual exit.
    pub fn exit(&self) -> u32 {
        self.successors.len() as u32
    }

    pub fn predecessors(&self) -> Vec<Vec<u32>> {
        let mut predecessors = vec![Vec::new(); self.len()];
        for (from, successors) in self.successors.iter().enumerate() {
            for to in successors {
                predecessors[*to as usize].push(from as u32);
            }
        }
        predecessors
    }
}

const NONE: u32 = u32::MAX;

/// The immediate post-dominator of each node: a node, [`Graph::exit`], or `None` if the node reaches no exit.
pub fn post_dominators(graph: &Graph) -> Vec<Option<u32>> {
    let exit = graph.exit();
    let predecessors = graph.predecessors();
    let order = post_order_from_exit(graph, &predecessors);
    let mut number = vec![NONE; graph.len() + 1];
    for (n, node) in order.iter().enumerate() {
        number[*node as usize] = n as u32;
    }
    let mut parent = vec![NONE; graph.len() + 1];
    parent[exit as usize] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for node in order.iter().rev().skip(1) {
            let leaves = graph.exits[*node as usize].then_some(exit);
            let ways = graph.successors[*node as usize].iter().copied().chain(leaves);
            let done = ways.filter(|way| parent[*way as usize] != NONE);
            let meet = done.reduce(|a, b| intersect(&parent, &number, a, b)).unwrap_or(NONE);
            if meet != parent[*node as usize] {
                parent[*node as usize] = meet;
                changed = true;
            }
        }
    }
    parent.truncate(graph.len());
    parent.into_iter().map(|p| (p != NONE).then_some(p)).collect()
}

/// Nearest common ancestor in the tree so far; ancestors have greater numbers.
fn intersect(parent: &[u32], number: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while number[a as usize] < number[b as usize] {
            a = parent[a as usize];
        }
        while number[b as usize] < number[a as usize] {
            b = parent[b as usize];
        }
    }
    a
}

/// Nodes that reach an exit, in post-order of a walk against the edges that begins at the exit, which comes last.
fn post_order_from_exit(graph: &Graph, predecessors: &[Vec<u32>]) -> Vec<u32> {
    let exit = graph.exit();
    let before_exit: Vec<u32> = (0..exit).filter(|n| graph.exits[*n as usize]).collect();
    let before = |node: u32| if node == exit { &before_exit } else { &predecessors[node as usize] };
    let mut seen = vec![false; graph.len() + 1];
    seen[exit as usize] = true;
    let mut order = Vec::new();
    let mut stack = vec![(exit, 0)];
    while let Some((node, next)) = stack.last_mut() {
        match before(*node).get(*next) {
            Some(way) => {
                *next += 1;
                if !std::mem::replace(&mut seen[*way as usize], true) {
                    stack.push((*way, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merging::tests::random_graph;

    /// Can an exit be reached from `from` without passing through `without`?
    fn reaches_exit(graph: &Graph, from: u32, without: Option<u32>) -> bool {
        let mut seen = vec![false; graph.len()];
        let mut work = vec![from];
        while let Some(node) = work.pop() {
            if Some(node) == without || std::mem::replace(&mut seen[node as usize], true) {
                continue;
            }
            if graph.exits[node as usize] {
                return true;
            }
            work.extend(&graph.successors[node as usize]);
        }
        false
    }

    /// The definition: `b` post-dominates `a` if no way from `a` to an exit avoids `b`.
    fn slow_post_dominators(graph: &Graph, a: u32) -> Vec<u32> {
        (0..graph.exit()).filter(|b| *b != a && !reaches_exit(graph, a, Some(*b))).collect()
    }

    #[test]
    fn the_tree_holds_exactly_the_post_dominators_of_the_definition() {
        for seed in 0..3_000 {
            let graph = random_graph(seed);
            let tree = post_dominators(&graph);
            for node in 0..graph.exit() {
                if !reaches_exit(&graph, node, None) {
                    assert_eq!(tree[node as usize], None, "seed {seed}, node {node}");
                    continue;
                }
                let mut chain = Vec::new();
                let mut at = tree[node as usize];
                while let Some(above) = at.filter(|n| *n != graph.exit()) {
                    chain.push(above);
                    at = tree[above as usize];
                }
                assert_eq!(at, Some(graph.exit()), "seed {seed}, node {node}: the chain must end at the exit");
                chain.sort_unstable();
                assert_eq!(chain, slow_post_dominators(&graph, node), "seed {seed}, node {node}: {graph:?}");
            }
        }
    }
}
