//! What a backward walk still looks for: bytes of registers and memory, and who wants them.
//!
//! By default only the wanter nearest to the criterion is kept for each byte, which is all that distances and paths need;
//! with all edges every one is. Each want carries its distance, so that nothing need be looked up to compare two.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::registers::{REGISTERS, RegId};

/// Who wants something: a node, and its distance from the criterion. Where no nodes are kept, all have number 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Who {
    pub node: u32,
    pub distance: u32,
}

/// Memory is wanted by a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Want {
    /// Which bytes of a group of eight.
    pub mask: u64,
    pub who: Who,
    /// A register that was restored from here, if not 0: see [`mod@crate::backward`].
    pub token: u32,
}

/// Multiplies: addresses and numbers need no better.
#[derive(Default, Clone, Copy)]
pub struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }
}

pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;
pub type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

/// Wanted registers of one thread. Nearly always one node wants all that is wanted of a register.
#[derive(Clone)]
pub struct RegWants {
    /// Bytes of each that are wanted, and by whom.
    masks: [u64; REGISTERS],
    whos: [Who; REGISTERS],
    /// Further wants, of the registers in `shared`.
    more: Vec<(RegId, u64, Who)>,
    shared: u64,
    /// Which registers are wanted at all.
    pub any: u64,
}

impl Default for RegWants {
    fn default() -> RegWants {
        RegWants { masks: [0; REGISTERS], whos: [Who::default(); REGISTERS], more: Vec::new(), shared: 0, any: 0 }
    }
}

impl RegWants {
    /// Somebody wants these bytes. Without `all`, of two who want the same byte only the nearer one is kept.
    #[inline(always)]
    pub fn add(&mut self, reg: RegId, mask: u64, who: Who, all: bool) {
        let n = usize::from(reg.0);
        if self.any & reg.bit() == 0 {
            self.masks[n] = mask;
            self.whos[n] = who;
            self.any |= if mask == 0 { 0 } else { reg.bit() };
        } else if self.shared & reg.bit() == 0 && self.whos[n] == who {
            self.masks[n] |= mask;
        } else {
            self.add_second(reg, mask, who, all);
        }
    }

    fn add_second(&mut self, reg: RegId, mut mask: u64, who: Who, all: bool) {
        let n = usize::from(reg.0);
        if !all {
            if self.whos[n].distance <= who.distance {
                mask &= !self.masks[n];
            } else {
                self.masks[n] &= !mask;
            }
            if self.shared & reg.bit() != 0 {
                self.settle(reg, &mut mask, who);
            }
        }
        if mask == 0 {
            return;
        }
        self.any |= reg.bit();
        if self.masks[n] == 0 {
            self.masks[n] = mask;
            self.whos[n] = who;
        } else {
            self.shared |= reg.bit();
            self.more.push((reg, mask, who));
        }
    }

    /// Settles who is the nearer one between a new want and those that were added later than the first.
    #[cold]
    fn settle(&mut self, reg: RegId, mask: &mut u64, who: Who) {
        for (_, m, w) in self.more.iter_mut().filter(|(r, ..)| *r == reg) {
            match w.distance <= who.distance {
                true => *mask &= !*m,
                false => *m &= !*mask,
            }
        }
        self.tidy(reg);
    }

    /// Drops wants without bytes.
    fn tidy(&mut self, reg: RegId) {
        let n = usize::from(reg.0);
        self.more.retain(|(r, mask, _)| *r != reg || *mask != 0);
        if self.masks[n] == 0
            && let Some(second) = self.more.iter().position(|(r, ..)| *r == reg)
        {
            (_, self.masks[n], self.whos[n]) = self.more.remove(second);
        }
        if !self.more.iter().any(|(r, ..)| *r == reg) {
            self.shared &= !reg.bit();
        }
        if self.masks[n] == 0 {
            self.any &= !reg.bit();
        }
    }

    /// Who wants these bytes of a register; they are no longer wanted if `kills`.
    #[inline(always)]
    pub fn take(&mut self, reg: RegId, mask: u64, kills: bool, mut each: impl FnMut(u64, Who)) {
        if self.any & reg.bit() == 0 {
            return;
        }
        let n = usize::from(reg.0);
        let common = self.masks[n] & mask;
        if common != 0 {
            each(common, self.whos[n]);
            if kills {
                self.masks[n] &= !common;
                if self.masks[n] == 0 && self.shared & reg.bit() == 0 {
                    self.any &= !reg.bit();
                }
            }
        }
        if self.shared & reg.bit() != 0 {
            self.take_more(reg, mask, kills, &mut each);
        }
    }

    #[cold]
    fn take_more(&mut self, reg: RegId, mask: u64, kills: bool, each: &mut dyn FnMut(u64, Who)) {
        for (_, m, who) in self.more.iter_mut().filter(|(r, ..)| *r == reg) {
            let common = *m & mask;
            if common != 0 {
                each(common, *who);
                if kills {
                    *m &= !common;
                }
            }
        }
        self.tidy(reg);
    }

    /// Somebody who wants this register.
    pub fn who(&self, reg: RegId) -> Option<Who> {
        (self.any & reg.bit() != 0).then_some(self.whos[usize::from(reg.0)])
    }

    /// Everything that is wanted: register, bytes, by whom.
    pub fn rest(&self) -> impl Iterator<Item = (RegId, u64, Who)> {
        let wanted = (0..REGISTERS as u8).map(RegId).filter(|r| self.any & r.bit() != 0);
        let first = wanted.map(|r| (r, self.masks[usize::from(r.0)], self.whos[usize::from(r.0)]));
        first.chain(self.more.iter().copied())
    }
}

/// Memory is kept in rows of 64 groups of eight bytes.
const ROW: u64 = 9;
const GROUPS: usize = 64;
const FILTER: usize = 4096;
/// No want, no row.
const NONE: u32 = u32::MAX;

/// One want in the list of a group.
#[derive(Clone, Copy)]
struct Link {
    who: Who,
    token: u32,
    next: u32,
    mask: u8,
}

const EMPTY: Link = Link { who: Who { node: 0, distance: 0 }, token: 0, next: NONE, mask: 0 };

impl Link {
    fn want(&self, mask: u8) -> Want {
        Want { mask: u64::from(mask), who: self.who, token: self.token }
    }
}

/// Groups of a row that are wanted.
struct Row {
    bits: u64,
    number: u64,
    /// For each wanted group the first of its wants.
    first: [Link; GROUPS],
}

/// Wanted bytes of memory. Lists are linked in one array, so that wanting and taking cost no allocation.
pub struct MemWants {
    /// Open addressing: numbers of rows and where they are; a power of two of them.
    table: Vec<(u64, u32)>,
    /// For the lower bits of a row's number, whether there may be such a row: most stores are to others.
    filter: [u64; FILTER / 64],
    rows: Vec<Row>,
    links: Vec<Link>,
    free: Vec<u32>,
    /// Groups that are wanted.
    pub groups: usize,
}

impl Default for MemWants {
    fn default() -> MemWants {
        MemWants {
            table: vec![(0, NONE); 64],
            filter: [0; FILTER / 64],
            rows: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            groups: 0,
        }
    }
}

/// The groups of eight that a range touches: row, index in it, mask of bytes, offset of the group from the range's start.
#[inline(always)]
fn groups(addr: u64, len: u64) -> impl Iterator<Item = (u64, usize, u8, i64)> {
    let last = addr.saturating_add(len.max(1) - 1);
    (addr >> 3..=last >> 3).map(move |g| {
        let start = g << 3;
        let from = addr.max(start) - start;
        let to = last.min(start + 7) - start;
        let mask = (0xffu64 >> (7 - to)) & (0xff << from);
        (start >> ROW, (g % GROUPS as u64) as usize, mask as u8, start.wrapping_sub(addr) as i64)
    })
}

impl MemWants {
    /// Where the row is in the table, or the free place for it.
    #[inline(always)]
    fn place(&self, number: u64) -> usize {
        let most = self.table.len() - 1;
        let mut at = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & most;
        while self.table[at].1 != NONE && self.table[at].0 != number {
            at = (at + 1) & most;
        }
        at
    }

    #[inline(always)]
    fn row(&self, number: u64) -> Option<&Row> {
        self.rows.get(self.table[self.place(number)].1 as usize)
    }

    fn row_to_fill(&mut self, number: u64) -> usize {
        let place = self.place(number);
        match self.table[place].1 {
            NONE => self.new_row(number),
            row => row as usize,
        }
    }

    #[cold]
    fn new_row(&mut self, number: u64) -> usize {
        if self.rows.len() * 2 >= self.table.len() {
            self.make_room();
        }
        let place = self.place(number);
        self.table[place] = (number, self.rows.len() as u32);
        self.pass_filter(number);
        self.rows.push(Row { bits: 0, number, first: [EMPTY; GROUPS] });
        self.rows.len() - 1
    }

    fn pass_filter(&mut self, row: u64) {
        let n = row as usize % FILTER;
        self.filter[n / 64] |= 1 << (n % 64);
    }

    #[inline(always)]
    fn may_have(&self, row: u64) -> bool {
        let n = row as usize % FILTER;
        self.filter[n / 64] >> (n % 64) & 1 != 0
    }

    /// Drops rows in which nothing is wanted; makes the table larger if most are wanted.
    fn make_room(&mut self) {
        self.rows.retain(|r| r.bits != 0);
        if self.rows.len() * 4 >= self.table.len() {
            self.table = vec![(0, NONE); self.table.len() * 2];
        } else {
            self.table.fill((0, NONE));
        }
        self.filter = [0; FILTER / 64];
        for n in 0..self.rows.len() {
            let number = self.rows[n].number;
            self.pass_filter(number);
            let place = self.place(number);
            self.table[place] = (number, n as u32);
        }
    }

    #[inline]
    pub fn add(&mut self, addr: u64, len: u64, who: Who, token: u32, all: bool) {
        for (number, group, mask, _) in groups(addr, len) {
            self.add_group(number, group, (mask, who, token), all);
        }
    }

    /// Bytes of the group of eight at an address.
    pub fn add_bytes(&mut self, addr: u64, mask: u8, who: Who, token: u32, all: bool) {
        self.add_group(addr >> ROW, (addr >> 3) as usize % GROUPS, (mask, who, token), all);
    }

    #[inline]
    fn add_group(&mut self, number: u64, group: usize, (mask, who, token): (u8, Who, u32), all: bool) {
        let row = self.row_to_fill(number);
        let row = &mut self.rows[row];
        let first = &mut row.first[group];
        if row.bits >> group & 1 == 0 {
            row.bits |= 1 << group;
            self.groups += 1;
            *first = Link { who, token, next: NONE, mask };
            return;
        }
        if first.who == who && first.token == token && first.next == NONE {
            first.mask |= mask;
            return;
        }
        let mask = if all { mask } else { nearest(first, &mut self.links, (mask, who, token)) };
        let link = Link { who, token, next: first.next, mask };
        if mask != 0 && first.mask == 0 {
            *first = link;
        } else if mask != 0 {
            first.next = keep(&mut self.links, &mut self.free, link);
        }
    }

    /// The groups of eight bytes of which any are wanted: eighths of their addresses.
    pub fn wanted_groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.rows.iter().flat_map(|r| {
            let first = r.number << ROW >> 3;
            (0..GROUPS as u64).filter(|g| r.bits >> g & 1 != 0).map(move |g| first + g)
        })
    }

    /// Is any of these bytes' groups wanted? May say yes where none of the very bytes is.
    #[inline(always)]
    pub fn touches(&self, addr: u64, len: u32) -> bool {
        let last = addr.wrapping_add(u64::from(len.max(1)) - 1);
        if addr >> ROW == last >> ROW {
            if !self.may_have(addr >> ROW) {
                return false;
            }
            let Some(row) = self.row(addr >> ROW) else { return false };
            let (a, b) = (addr >> 3 & 63, last >> 3 & 63);
            return row.bits >> a & (u64::MAX >> (63 - (b - a))) != 0;
        }
        groups(addr, u64::from(len)).any(|(row, g, _, _)| self.row(row).is_some_and(|r| r.bits >> g & 1 != 0))
    }

    /// Who wants bytes of a range, with the offsets of the bytes from its start as `offset` + the bits of the mask; they are
    /// no longer wanted if `kills`.
    pub fn take(&mut self, addr: u64, len: u64, kills: bool, out: &mut Vec<(Want, i64)>) {
        if len > 1 << 16 {
            return self.take_long(addr, len, kills, out);
        }
        self.take_each(addr, len, kills, |w, offset| out.push((w, offset)));
    }

    /// The same for a short range, one by one.
    #[inline]
    pub fn take_each(&mut self, addr: u64, len: u64, kills: bool, mut each: impl FnMut(Want, i64)) {
        for (row, group, mask, offset) in groups(addr, len) {
            self.take_group(row, group, mask, kills, |w| each(w, offset));
        }
    }

    /// The same for a range that is longer than what is wanted, perhaps.
    fn take_long(&mut self, addr: u64, len: u64, kills: bool, out: &mut Vec<(Want, i64)>) {
        for row in self.rows_in(addr, len) {
            let from = addr.max(row << ROW);
            let to = addr.saturating_add(len).min((row + 1) << ROW);
            let base = from.wrapping_sub(addr) as i64;
            for (row, group, mask, offset) in groups(from, to - from) {
                self.take_group(row, group, mask, kills, |w| out.push((w, base + offset)));
            }
        }
    }

    /// The rows of a range in which something is wanted, in order.
    fn rows_in(&self, addr: u64, len: u64) -> Vec<u64> {
        let (first, last) = (addr >> ROW, addr.saturating_add(len.max(1) - 1) >> ROW);
        if last - first < self.rows.len() as u64 {
            return (first..=last).filter(|r| self.row(*r).is_some()).collect();
        }
        let numbers = self.rows.iter().map(|r| r.number);
        let mut within: Vec<u64> = numbers.filter(|r| (first..=last).contains(r)).collect();
        within.sort_unstable();
        within
    }

    /// Somebody who wants a byte of the range.
    pub fn who(&self, addr: u64, len: u64) -> Option<Who> {
        self.rows_in(addr, len).into_iter().find_map(|number| {
            let row = self.row(number)?;
            let from = addr.max(number << ROW);
            let to = addr.saturating_add(len).min((number + 1) << ROW);
            groups(from, to - from).find_map(|(_, g, mask, _)| {
                let mut wants = self.of_group(row, g);
                wants.find(|w| w.mask & mask != 0 && w.token == 0).map(|w| w.who)
            })
        })
    }

    /// Somebody who wants a byte outside the range.
    pub fn who_outside(&self, range: std::ops::Range<u64>) -> Option<Who> {
        let (first, last) = (range.start >> ROW, range.end >> ROW);
        let outside = self.rows.iter().filter(|r| !(first..=last).contains(&r.number) && r.bits != 0);
        let row = outside.min_by_key(|r| r.number)?;
        let all = (0..GROUPS).flat_map(|g| self.of_group(row, g));
        all.filter(|w| w.token == 0 && w.mask != 0).map(|w| w.who).min_by_key(|w| w.node)
    }

    fn of_group<'a>(&'a self, row: &'a Row, group: usize) -> impl Iterator<Item = &'a Link> + 'a {
        let mut at = (row.bits >> group & 1 != 0).then(|| &row.first[group]);
        std::iter::from_fn(move || {
            let link = at?;
            at = self.links.get(link.next as usize);
            Some(link)
        })
    }

    #[inline(always)]
    fn take_group(&mut self, number: u64, group: usize, mask: u8, kills: bool, mut each: impl FnMut(Want)) {
        let place = self.place(number);
        let Some(row) = self.rows.get_mut(self.table[place].1 as usize) else { return };
        if row.bits >> group & 1 == 0 {
            return;
        }
        let first = &mut row.first[group];
        let mut take = |link: &mut Link| {
            let common = link.mask & mask;
            if common != 0 {
                each(link.want(common));
                if kills {
                    link.mask &= !common;
                }
            }
        };
        take(first);
        let (mut kept, mut at) = (NONE, first.next);
        while at != NONE {
            let (this, link) = (at, &mut self.links[at as usize]);
            at = link.next;
            take(link);
            if link.mask == 0 {
                self.free.push(this);
            } else {
                link.next = kept;
                kept = this;
            }
        }
        first.next = kept;
        if first.mask == 0 {
            match kept {
                NONE => {
                    row.bits &= !(1 << group);
                    self.groups -= 1;
                }
                next => {
                    *first = self.links[next as usize];
                    self.free.push(next);
                }
            }
        }
    }

    /// Everything that is wanted: address of the group and the want.
    pub fn rest(&self) -> Vec<(u64, Want)> {
        let mut all = Vec::new();
        for row in &self.rows {
            for group in (0..GROUPS).filter(|g| row.bits >> g & 1 != 0) {
                let at = (row.number << ROW) + group as u64 * 8;
                let wants = self.of_group(row, group).filter(|l| l.mask != 0);
                all.extend(wants.map(|l| (at, l.want(l.mask))));
            }
        }
        all.sort_unstable_by_key(|(at, w)| (*at, w.who.node));
        all
    }
}

fn keep(links: &mut Vec<Link>, free: &mut Vec<u32>, link: Link) -> u32 {
    match free.pop() {
        Some(n) => {
            links[n as usize] = link;
            n
        }
        None => {
            links.push(link);
            links.len() as u32 - 1
        }
    }
}

/// Of two who want the same byte only the nearer one is kept. Answers what is left for the new one. Links that lose all
/// their bytes are dropped when their group is taken.
fn nearest(first: &mut Link, links: &mut [Link], (mut mask, who, token): (u8, Who, u32)) -> u8 {
    let mut settle = |link: &mut Link| {
        let common = link.mask & mask;
        if common != 0 && link.token == token {
            match link.who.distance <= who.distance {
                true => mask &= !common,
                false => link.mask &= !common,
            }
        }
        link.next
    };
    let mut at = settle(first);
    while let Some(link) = links.get_mut(at as usize) {
        at = settle(link);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_taken(wants: &mut MemWants, addr: u64, len: u64, expected: &[(u32, u64, i64)]) {
        let mut out = Vec::new();
        wants.take(addr, len, true, &mut out);
        let got: Vec<_> = out.iter().map(|(w, offset)| (w.who.node, w.mask, *offset)).collect();
        assert_eq!(got, expected, "{addr:#x}+{len}");
    }

    #[test]
    fn bytes_are_wanted_until_they_are_taken() {
        let mut wants = MemWants::default();
        wants.add(0x1006, 4, Who { node: 7, distance: 0 }, 0, true);
        assert!(wants.touches(0x1006, 1) && wants.touches(0x1008, 8) && !wants.touches(0x1010, 8));
        check_taken(&mut wants, 0x1007, 2, &[(7, 0x80, -7), (7, 1, 1)]);
        check_taken(&mut wants, 0x1007, 2, &[]);
        check_taken(&mut wants, 0x1000, 16, &[(7, 0x40, 0), (7, 2, 8)]);
        assert_eq!(wants.groups, 0);
        assert!(!wants.touches(0x1000, 4096));
    }

    #[test]
    fn ranges_may_cross_pages() {
        let mut wants = MemWants::default();
        wants.add(0x1ffe, 4, Who { node: 1, distance: 0 }, 0, true);
        assert!(wants.touches(0x1ff0, 32) && wants.touches(0x2001, 1) && !wants.touches(0x2008, 8));
        check_taken(&mut wants, 0, 1 << 20, &[(1, 0xc0, 0x1ff8), (1, 3, 0x2000)]);
    }

    #[test]
    fn the_nearer_wanter_is_kept() {
        let mut wants = RegWants::default();
        let (far, near) = (Who { node: 1, distance: 5 }, Who { node: 2, distance: 2 });
        wants.add(RegId::RAX, 0xff, far, false);
        wants.add(RegId::RAX, 0x0f, near, false);
        let mut out = Vec::new();
        wants.take(RegId::RAX, 0xff, true, |mask, who| out.push((who.node, mask)));
        out.sort_unstable();
        assert_eq!(out, [(1, 0xf0), (2, 0x0f)]);
        assert_eq!(wants.any, 0);
    }

    #[test]
    fn a_wanter_nearer_than_several_takes_their_place() {
        let mut wants = RegWants::default();
        for (mask, distance) in [(0x0f, 5), (0xf0, 6), (0xff, 1)] {
            wants.add(RegId::RAX, mask, Who { node: distance, distance }, false);
        }
        let left: Vec<_> = wants.rest().map(|(_, mask, who)| (who.node, mask)).collect();
        assert_eq!((left, wants.any), (vec![(1, 0xff)], RegId::RAX.bit()));
    }

    #[test]
    fn all_wanters_of_a_register_are_kept_if_asked_for() {
        let mut wants = RegWants::default();
        for node in 1..4 {
            wants.add(RegId::RAX, 0xff, Who { node, distance: node }, true);
        }
        let mut nodes = Vec::new();
        wants.take(RegId::RAX, 0x0f, true, |mask, who| nodes.push((who.node, mask)));
        assert_eq!(nodes, [(1, 0x0f), (2, 0x0f), (3, 0x0f)]);
        assert_eq!((wants.rest().count(), wants.any), (3, RegId::RAX.bit()));
        wants.take(RegId::RAX, 0xff, true, |_, _| {});
        assert_eq!((wants.rest().count(), wants.any), (0, 0));
    }

    #[test]
    fn rows_in_which_nothing_is_wanted_any_more_make_room() {
        let mut wants = MemWants::default();
        let mut out = Vec::new();
        for n in 0..10_000u64 {
            wants.add(n << ROW, 8, Who::default(), 0, false);
            wants.take(n << ROW, 8, true, &mut out);
        }
        assert_eq!((out.len(), wants.groups), (10_000, 0));
        assert!(wants.rows.len() <= 64, "{} rows", wants.rows.len());
    }
}
