//! A slice as a debugger shows it: executions of source lines, and what each depends on.
//!
//! Executed instructions are put together by the line and its execution that they belong to; code of libraries belongs to
//! the call from own code that led there, and dependences within one execution of a line are dropped.
//!
//! May miss: in a recursive function an instruction behind the inner call counts to the inner execution of its line.

use crate::case::Place;
use crate::slice::criterion::ranges_of;
use crate::slice::lines::{Origin, Origins, Squash};
use image::{LoadedImages, Storage};
use model::GuestAddr;
use model::serve::{Moment, Predicate};
use slice::{Input, Node, Slice, Why, Window};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

/// One execution of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// `file.c:12`, or an address where no line is known.
    pub line: String,
    /// Which execution, if that is known, and when it began.
    pub instance: Option<u64>,
    pub moment: Option<Moment>,
    /// Dependences from the criterion.
    pub hops: u32,
}

impl Statement {
    pub fn number(&self) -> String {
        self.instance.map_or_else(|| "?".into(), |n| n.to_string())
    }
}

/// Why a statement depends on another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Because {
    Variable(String),
    /// A word of memory without a name.
    Memory(u64),
    Register(String),
    /// Something that libraries keep for themselves between two calls.
    Library,
    Control,
}

impl Because {
    pub fn text(&self) -> String {
        match self {
            Because::Variable(name) => name.clone(),
            Because::Memory(at) => format!("Memory {at:#x}"),
            Because::Register(name) => name.clone(),
            Because::Library => "Memory of libraries".into(),
            Because::Control => "ControlDependence".into(),
        }
    }

    /// Is this the dependence, or a part of the variable, that a user names?
    pub fn is_named(&self, name: &str) -> bool {
        let name = name.trim_start_matches(['$', '%']);
        match self {
            Because::Variable(own) => {
                let rest = own.trim_start_matches(['*', '(']).strip_prefix(name);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            }
            Because::Memory(at) => super::places::address(name).is_some_and(|named| named & !7 == *at),
            Because::Register(own) => own == name,
            Because::Library => name == "libraries",
            Because::Control => false,
        }
    }
}

/// `user` depends on `maker`, both by their numbers among the statements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link {
    pub user: u32,
    pub maker: u32,
    pub because: Because,
}

/// Statements and their dependences. The first statement is the criterion.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub statements: Vec<Statement>,
    pub links: BTreeSet<Link>,
}

impl Graph {
    /// What is left when dependences with these names are dropped: that which the criterion still depends on.
    pub fn without(&self, names: &[&str]) -> Graph {
        let links: BTreeSet<Link> =
            self.links.iter().filter(|l| !names.iter().any(|n| l.because.is_named(n))).cloned().collect();
        let hops = hops(self.statements.len(), &links);
        let mut numbers = HashMap::new();
        let mut statements = Vec::new();
        for (old, hops) in hops.iter().enumerate().filter(|(_, h)| **h != u32::MAX) {
            numbers.insert(old as u32, statements.len() as u32);
            statements.push(Statement { hops: *hops, ..self.statements[old].clone() });
        }
        let renumbered = links.into_iter().filter_map(|l| {
            Some(Link { user: *numbers.get(&l.user)?, maker: *numbers.get(&l.maker)?, because: l.because })
        });
        Graph { statements, links: renumbered.collect() }
    }

    /// A line as it is shown: without folders, unless files of the same name are in the slice.
    pub fn shown<'a>(&self, line: &'a str) -> &'a str {
        let name = |line: &'a str| line.rsplit('/').next().unwrap_or(line);
        let file = |line: &str| line.rsplit_once(':').map(|(file, _)| file.to_owned());
        let short = name(line);
        let of_name = |s: &&Statement| file(&s.line).is_some_and(|f| f.rsplit('/').next() == file(short).as_deref());
        match self.statements.iter().filter(of_name).all(|s| file(&s.line) == file(line)) {
            true => short,
            false => line,
        }
    }

    /// The lines in it, how many there are.
    pub fn lines(&self) -> usize {
        self.statements.iter().map(|s| &s.line).collect::<HashSet<_>>().len()
    }

    /// What a statement depends on.
    pub fn of(&self, user: u32) -> impl Iterator<Item = &Link> {
        let from = Link { user, maker: 0, because: Because::Variable(String::new()) };
        self.links.range(from..).take_while(move |l| l.user == user)
    }
}

/// Dependences from the criterion to each statement.
fn hops(count: usize, links: &BTreeSet<Link>) -> Vec<u32> {
    let mut makers: Vec<Vec<u32>> = vec![Vec::new(); count];
    links.iter().for_each(|l| makers[l.user as usize].push(l.maker));
    let mut hops = vec![u32::MAX; count];
    let mut next = VecDeque::from([0]);
    hops.iter_mut().take(1).for_each(|h| *h = 0);
    while let Some(user) = next.pop_front() {
        let far = hops[user as usize] + 1;
        for &maker in makers.get(user as usize).into_iter().flatten() {
            if hops[maker as usize] > far {
                hops[maker as usize] = far;
                next.push_back(maker);
            }
        }
    }
    hops
}

/// Everything that is needed to put the nodes of a slice together.
pub struct Gather<'a> {
    pub window: &'a Window,
    pub slice: &'a Slice,
    pub loaded: &'a LoadedImages,
    pub origins: Origins<'a>,
    pub squash: Squash<'a>,
    /// Functions that were under way when the window began, as ranges of their code, and where their frames are.
    pub outer: Vec<(Range<u64>, u64)>,
    /// What the criterion is called, if it has a name.
    pub wanted: Option<String>,
    names: HashMap<(u64, u64, u64), Option<String>>,
}

/// Where a node is shown: when, and at which line.
struct Shown {
    at: (u32, u16),
    line: String,
}

/// Executions of a line: in the window, in order, and when each of the run began.
#[derive(Default)]
struct Executions {
    in_window: Vec<(u32, u16)>,
    moments: Vec<Moment>,
}

impl Executions {
    /// The execution, counted from 1, that something in the window belongs to.
    fn of(&self, at: (u32, u16)) -> Option<usize> {
        let in_window = self.in_window.partition_point(|begun| *begun <= at);
        // Both are complete towards the end.
        (self.moments.len() + in_window).checked_sub(self.in_window.len()).filter(|n| *n > 0)
    }
}

impl<'a> Gather<'a> {
    pub fn new(window: &'a Window, slice: &'a Slice, loaded: &'a LoadedImages, origins: Origins<'a>) -> Gather<'a> {
        let squash = Squash::new(window, false);
        Gather { window, slice, loaded, origins, squash, outer: Vec::new(), wanted: None, names: HashMap::new() }
    }

    /// Where executions of the lines in the slice begin.
    pub fn beginnings(&mut self) -> BTreeMap<String, Vec<u64>> {
        let mut lines: BTreeMap<String, (PathBuf, u32)> = BTreeMap::new();
        for node in &self.slice.nodes[1..] {
            let Some((_, pc)) = self.squash.shown(node, &mut self.origins) else { continue };
            let origin: &Origin = self.origins.of(pc);
            if let (Some(file), Some(line)) = (&origin.full, origin.line) {
                lines.entry(origin.short()).or_insert_with(|| (file.clone(), line));
            }
        }
        let starts = |(file, line): (PathBuf, u32)| ranges_of(self.loaded, &Place::Line(file, line)).map(|r| r.starts);
        lines.into_iter().filter_map(|(name, place)| Some((name, starts(place).ok()?))).collect()
    }

    /// Puts the slice together. `executed` are the executions of all beginnings in the run up to the criterion, in order.
    /// The criterion is an execution of this line.
    pub fn graph(
        &mut self,
        beginnings: &BTreeMap<String, Vec<u64>>,
        executed: &[Predicate],
        criterion: Statement,
    ) -> Graph {
        let lines = self.executions(beginnings, executed);
        let mut statements = vec![criterion.clone()];
        let mut known: HashMap<(String, Option<u64>), u32> = HashMap::new();
        known.insert((criterion.line, criterion.instance), 0);
        let mut of_node = vec![Some(0)];
        for node in &self.slice.nodes[1..] {
            if node.why == Why::Criterion {
                of_node.push(Some(0));
                continue;
            }
            let shown = self.shown(node);
            of_node.push(shown.map(|s| {
                let n = lines.get(&s.line).and_then(|e| e.of(s.at).map(|n| (n as u64, e.moments.get(n - 1).copied())));
                let (instance, moment) = n.map_or((None, None), |(n, moment)| (Some(n), moment));
                *known.entry((s.line.clone(), instance)).or_insert_with(|| {
                    statements.push(Statement { line: s.line, instance, moment, hops: 0 });
                    statements.len() as u32 - 1
                })
            }));
        }
        let links = self.links(&of_node);
        let hops = hops(statements.len(), &links);
        statements.iter_mut().zip(hops).for_each(|(s, hops)| s.hops = hops);
        // What is left unconnected was reached through code that nobody's own led to.
        Graph { statements, links }.without(&[])
    }

    fn shown(&mut self, node: &Node) -> Option<Shown> {
        let (segment, pc) = self.squash.shown(node, &mut self.origins)?;
        let at = match pc == node.pc {
            true => (node.execution, node.insn),
            false => self.squash.sites.place(segment)?,
        };
        Some(Shown { at, line: self.origins.of(pc).short() })
    }

    fn executions(
        &self,
        beginnings: &BTreeMap<String, Vec<u64>>,
        executed: &[Predicate],
    ) -> HashMap<String, Executions> {
        let pcs: Vec<u64> = beginnings.values().flatten().copied().collect();
        let in_window = self.window.instances(&pcs);
        let mut moments: HashMap<u64, Vec<Moment>> = HashMap::new();
        executed.iter().for_each(|p| moments.entry(p.moment.pc).or_default().push(p.moment));
        let of_line = |starts: &Vec<u64>| {
            let mut all = Executions::default();
            for pc in starts {
                all.in_window.extend(in_window.get(pc).into_iter().flatten().map(|i| (i.execution, i.insn)));
                all.moments.extend(moments.get(pc).into_iter().flatten());
            }
            all.in_window.sort_unstable();
            all.moments.sort_unstable();
            all
        };
        beginnings.iter().map(|(line, starts)| (line.clone(), of_line(starts))).collect()
    }

    fn links(&mut self, of_node: &[Option<u32>]) -> BTreeSet<Link> {
        let mut links = BTreeSet::new();
        let mut add = |user: Option<u32>, maker: Option<u32>, because: Because| {
            if let (Some(user), Some(maker)) = (user, maker)
                && user != maker
            {
                links.insert(Link { user, maker, because });
            }
        };
        let slice = self.slice;
        for edge in &slice.edges {
            let (user, maker) = (of_node[edge.user as usize], of_node[edge.maker as usize]);
            if user.is_some() && maker.is_some() && user != maker {
                add(user, maker, self.because(edge.why, edge.user, edge.maker));
            }
        }
        let by_place: HashMap<(u32, u16), usize> =
            slice.nodes.iter().enumerate().skip(1).map(|(n, node)| ((node.execution, node.insn), n)).collect();
        for (n, node) in slice.nodes.iter().enumerate().skip(1) {
            // The nearest user is told by the node itself, the others by who decided about them.
            add(of_node[node.via as usize], of_node[n], self.because(node.why, node.via, n as u32));
            let decided = self.squash.sites.parent(node.segment).and_then(|p| self.squash.sites.place(p));
            if let Some(by) = decided.and_then(|place| by_place.get(&place)) {
                add(of_node[n], of_node[*by], Because::Control);
            }
        }
        links
    }

    fn because(&mut self, why: Why, user: u32, maker: u32) -> Because {
        let (nodes, origins) = (&self.slice.nodes, &mut self.origins);
        let is_between = [user, maker].into_iter().all(|n| n != 0 && !origins.is_own(nodes[n as usize].pc));
        match why {
            Why::Reg(_) | Why::Mem(_) if is_between => Because::Library,
            Why::Reg(reg) => Because::Register(reg.name().to_string()),
            Why::Mem(addr) => match self.variable(addr, user) {
                Some(name) => Because::Variable(name),
                None => Because::Memory(addr & !7),
            },
            Why::Criterion | Why::Control | Why::Potential => Because::Control,
        }
    }

    /// What the code of `user` calls the byte at an address.
    fn variable(&mut self, addr: u64, user: u32) -> Option<String> {
        if user == 0 && self.wanted.is_some() {
            return self.wanted.clone();
        }
        let node = self.slice.nodes.get(user as usize).filter(|_| user != 0);
        let outer = |pc: u64| self.outer.iter().find(|(code, _)| code.contains(&pc)).map(|(_, cfa)| *cfa);
        let frame = node.and_then(|n| {
            let cfa = self.window.slot(n.execution).map(|slot| slot + 8).or_else(|| outer(n.pc))?;
            Some((n.pc, cfa))
        });
        let (pc, cfa) = frame.unwrap_or_default();
        let loaded = self.loaded;
        let named = || {
            let what = Storage::Memory { at: GuestAddr(addr), size: 0 };
            let in_frame = frame.and_then(|_| loaded.name_in_frame(GuestAddr(pc), GuestAddr(cfa), what));
            in_frame.or_else(|| loaded.global_at(GuestAddr(addr), 0))
        };
        self.names.entry((pc, cfa, addr)).or_insert_with(named).clone()
    }

    /// What the slice needs that was there before the window, by name.
    pub fn inputs(&mut self) -> BTreeSet<String> {
        let slice = self.slice;
        let name = |input: &Input| match input {
            Input::Reg { reg, .. } => reg.name().to_string(),
            Input::Mem { addr, mask, node, .. } => {
                match self.variable(addr + u64::from(mask.trailing_zeros()), *node) {
                    Some(name) => name,
                    None => format!("{:#x}", addr & !7),
                }
            }
        };
        slice.inputs.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(links: &[(u32, u32, &str)]) -> Graph {
        let count = links.iter().map(|(u, m, _)| u.max(m)).max().map_or(0, |n| n + 1);
        let statement = |n: u32| Statement { line: format!("a.c:{n}"), instance: Some(1), moment: None, hops: 0 };
        let link = |&(user, maker, name): &(u32, u32, &str)| {
            let because = if name.is_empty() { Because::Control } else { Because::Variable(name.into()) };
            Link { user, maker, because }
        };
        let graph = Graph { statements: (0..count).map(statement).collect(), links: links.iter().map(link).collect() };
        graph.without(&[])
    }

    #[test]
    fn dropping_a_variable_drops_what_only_it_led_to() {
        let all = graph(&[(0, 1, "x"), (1, 2, "y"), (0, 3, "z"), (3, 4, "")]);
        let left = all.without(&["x"]);
        let lines: Vec<&str> = left.statements.iter().map(|s| s.line.as_str()).collect();
        assert_eq!(lines, ["a.c:0", "a.c:3", "a.c:4"]);
        assert_eq!(left.links.len(), 2);
        assert_eq!(left.statements[2].hops, 2);
        assert_eq!(all.statements.len(), 5, "the whole one stays");
    }

    #[test]
    fn parts_of_a_variable_go_with_it_and_control_stays() {
        let name = |n: &str| Because::Variable(n.into());
        assert!(name("fileptr[0]").is_named("fileptr"));
        assert!(name("s.next").is_named("s"));
        assert!(name("*p").is_named("p"));
        assert!(!name("files").is_named("file"));
        assert!(Because::Register("rax".into()).is_named("$rax"));
        assert!(Because::Memory(0x1000).is_named("0x1004"));
        assert!(!Because::Control.is_named("ControlDependence"));
    }

    #[test]
    fn something_belongs_to_the_last_execution_that_began_before_it() {
        let moment = |tick| Moment { tick, pc: 1 };
        // Two of the five executions lie before the window.
        let e = Executions { in_window: vec![(3, 0), (7, 2), (9, 0)], moments: (1..=5).map(moment).collect() };
        assert_eq!(e.of((3, 0)), Some(3));
        assert_eq!(e.of((7, 1)), Some(3));
        assert_eq!(e.of((7, 2)), Some(4));
        assert_eq!(e.of((1, 0)), Some(2));
    }
}
