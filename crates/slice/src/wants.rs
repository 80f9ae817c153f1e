//! What a backward walk still looks for: bytes of registers and memory, and who wants them.
//!
//! By default only the wanter nearest to the criterion is kept for each byte, which is all that distances and paths need;
//! with all edges every one is.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::registers::{REGISTERS, RegId};

/// A place is wanted by a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Which bytes; of memory, of a group of eight.
    pub mask: u64,
    pub node: u32,
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

/// Adds a want to a list. Without `all`, of two who want the same byte only the nearer one is kept.
fn add(list: &mut Vec<Want>, mut want: Want, all: bool, distance: &dyn Fn(u32) -> u32) {
    if !all {
        list.retain_mut(|w| {
            let common = w.mask & want.mask;
            if common != 0 && w.token == want.token {
                match distance(w.node) <= distance(want.node) {
                    true => want.mask &= !common,
                    false => w.mask &= !common,
                }
            }
            w.mask != 0
        });
    } else if let Some(w) = list.iter_mut().rev().take(2).find(|w| w.node == want.node && w.token == want.token) {
        w.mask |= want.mask;
        return;
    }
    if want.mask != 0 {
        list.push(want);
    }
}

/// Takes what `mask` covers out of a list; leaves it there, too, unless `kills`.
fn take(list: &mut Vec<Want>, mask: u64, kills: bool, out: &mut Vec<Want>) -> u64 {
    let mut left = 0;
    list.retain_mut(|w| {
        let common = w.mask & mask;
        if common != 0 {
            out.push(Want { mask: common, ..*w });
            if kills {
                w.mask &= !common;
            }
        }
        left |= w.mask;
        w.mask != 0
    });
    left
}

/// Wanted registers of one thread.
#[derive(Clone)]
pub struct RegWants {
    lists: Vec<Vec<Want>>,
    /// Which registers are wanted at all.
    pub any: u64,
}

impl Default for RegWants {
    fn default() -> RegWants {
        RegWants { lists: vec![Vec::new(); REGISTERS], any: 0 }
    }
}

impl RegWants {
    pub fn add(&mut self, reg: RegId, want: Want, all: bool, distance: &dyn Fn(u32) -> u32) {
        if want.mask == 0 {
            return;
        }
        self.any |= reg.bit();
        add(&mut self.lists[usize::from(reg.0)], want, all, distance);
    }

    /// Who wants these bytes of a register; they are no longer wanted if `kills`.
    pub fn take(&mut self, reg: RegId, mask: u64, kills: bool, out: &mut Vec<Want>) {
        if self.any & reg.bit() == 0 {
            return;
        }
        let left = take(&mut self.lists[usize::from(reg.0)], mask, kills, out);
        if left == 0 {
            self.any &= !reg.bit();
        }
    }

    /// Somebody who wants this register.
    pub fn who(&self, reg: RegId) -> Option<u32> {
        self.lists[usize::from(reg.0)].first().map(|w| w.node)
    }

    /// Everything that is wanted.
    pub fn rest(&self) -> impl Iterator<Item = (RegId, &Want)> {
        self.lists.iter().enumerate().flat_map(|(n, list)| list.iter().map(move |w| (RegId(n as u8), w)))
    }
}

const PAGE: u64 = 12;

/// Groups of a page that are wanted.
struct Page {
    bits: [u64; 8],
    /// For each group the first of its wants.
    heads: Box<[u32; 512]>,
}

impl Default for Page {
    fn default() -> Page {
        Page { bits: [0; 8], heads: Box::new([NONE; 512]) }
    }
}

impl Page {
    fn is_wanted(&self, group: u16) -> bool {
        self.bits[usize::from(group >> 6)] >> (group & 63) & 1 != 0
    }
}

/// No want.
const NONE: u32 = u32::MAX;

/// One want in the list of a group.
#[derive(Clone, Copy)]
struct Link {
    mask: u8,
    node: u32,
    token: u32,
    next: u32,
}

/// Wanted bytes of memory. Lists are linked in one array, so that wanting and taking cost no allocation.
#[derive(Default)]
pub struct MemWants {
    pages: FastMap<u64, Page>,
    links: Vec<Link>,
    free: Vec<u32>,
    /// Groups that are wanted.
    pub groups: usize,
}

/// The groups of eight that a range touches: page, index in it, mask of bytes, offset of the group from the range's start.
fn groups(addr: u64, len: u64) -> impl Iterator<Item = (u64, u16, u64, i64)> {
    let last = addr.saturating_add(len.max(1) - 1);
    (addr >> 3..=last >> 3).map(move |g| {
        let start = g << 3;
        let from = addr.max(start) - start;
        let to = last.min(start + 7) - start;
        let mask = (0xffu64 >> (7 - to)) & (0xff << from);
        (start >> PAGE, (g & 511) as u16, mask, start.wrapping_sub(addr) as i64)
    })
}

impl MemWants {
    pub fn add(&mut self, addr: u64, len: u64, node: u32, token: u32, all: bool, distance: &dyn Fn(u32) -> u32) {
        for (page, group, mask, _) in groups(addr, len) {
            let p = self.pages.entry(page).or_default();
            let head = &mut p.heads[usize::from(group)];
            let mut mask = mask as u8;
            if *head == NONE {
                p.bits[usize::from(group >> 6)] |= 1 << (group & 63);
                self.groups += 1;
            } else if !all {
                mask = nearest(&mut self.links, *head, (mask, node, token), distance);
            }
            if mask != 0 {
                let link = Link { mask, node, token, next: *head };
                *head = match self.free.pop() {
                    Some(n) => {
                        self.links[n as usize] = link;
                        n
                    }
                    None => {
                        self.links.push(link);
                        self.links.len() as u32 - 1
                    }
                };
            }
        }
    }

    /// Is any of these bytes' groups wanted? May say yes where none of the very bytes is.
    pub fn touches(&self, addr: u64, len: u32) -> bool {
        let last = addr.wrapping_add(u64::from(len.max(1)) - 1);
        let (first_page, last_page) = (addr >> PAGE, last >> PAGE);
        if first_page == last_page {
            let Some(p) = self.pages.get(&first_page) else { return false };
            let (a, b) = ((addr >> 3) & 511, (last >> 3) & 511);
            if a >> 6 == b >> 6 {
                let bits = p.bits[(a >> 6) as usize] >> (a & 63);
                return bits & (u64::MAX >> (63 - (b - a))) != 0;
            }
            return (a..=b).any(|g| p.is_wanted(g as u16));
        }
        groups(addr, u64::from(len)).any(|(page, g, _, _)| self.pages.get(&page).is_some_and(|p| p.is_wanted(g)))
    }

    /// Who wants bytes of a range, with the offsets of the bytes from its start as `offset` + the bits of the mask; they are
    /// no longer wanted if `kills`.
    pub fn take(&mut self, addr: u64, len: u64, kills: bool, out: &mut Vec<(Want, i64)>) {
        if len > 1 << 16 {
            return self.take_long(addr, len, kills, out);
        }
        for (page, group, mask, offset) in groups(addr, len) {
            self.take_group(page, group, mask as u8, kills, offset, out);
        }
    }

    /// The same for a range that is longer than what is wanted, perhaps.
    fn take_long(&mut self, addr: u64, len: u64, kills: bool, out: &mut Vec<(Want, i64)>) {
        for page in self.pages_in(addr, len) {
            let from = addr.max(page << PAGE);
            let to = addr.saturating_add(len).min((page + 1) << PAGE);
            let base = from.wrapping_sub(addr) as i64;
            for (page, group, mask, offset) in groups(from, to - from) {
                self.take_group(page, group, mask as u8, kills, base + offset, out);
            }
        }
    }

    /// The pages of a range in which something is wanted, in order.
    fn pages_in(&self, addr: u64, len: u64) -> Vec<u64> {
        let (first, last) = (addr >> PAGE, addr.saturating_add(len.max(1) - 1) >> PAGE);
        if last - first < self.pages.len() as u64 {
            return (first..=last).filter(|p| self.pages.contains_key(p)).collect();
        }
        let mut within: Vec<u64> = self.pages.keys().copied().filter(|p| (first..=last).contains(p)).collect();
        within.sort_unstable();
        within
    }

    /// Somebody who wants a byte of the range.
    pub fn who(&self, addr: u64, len: u64) -> Option<u32> {
        self.pages_in(addr, len).into_iter().find_map(|page| {
            let p = &self.pages[&page];
            let from = addr.max(page << PAGE);
            let to = addr.saturating_add(len).min((page + 1) << PAGE);
            groups(from, to - from).filter(|(_, g, _, _)| p.is_wanted(*g)).find_map(|(_, g, mask, _)| {
                let mut wants = self.of_group(p, g);
                wants.find(|w| u64::from(w.mask) & mask != 0 && w.token == 0).map(|w| w.node)
            })
        })
    }

    /// Somebody who wants a byte outside the range.
    pub fn who_outside(&self, range: std::ops::Range<u64>) -> Option<u32> {
        let (first, last) = (range.start >> PAGE, range.end >> PAGE);
        let outside = self.pages.iter().filter(|(n, p)| !(first..=last).contains(*n) && p.bits != [0; 8]);
        let page = outside.min_by_key(|(n, _)| **n).map(|(_, p)| p)?;
        (0..512).flat_map(|g| self.of_group(page, g)).filter(|w| w.token == 0).map(|w| w.node).min()
    }

    fn of_group<'a>(&'a self, page: &Page, group: u16) -> impl Iterator<Item = &'a Link> + 'a {
        let mut at = page.heads[usize::from(group)];
        std::iter::from_fn(move || {
            let link = self.links.get(at as usize)?;
            at = link.next;
            Some(link)
        })
    }

    fn take_group(&mut self, page: u64, group: u16, mask: u8, kills: bool, offset: i64, out: &mut Vec<(Want, i64)>) {
        let Some(p) = self.pages.get_mut(&page).filter(|p| p.is_wanted(group)) else { return };
        let (mut kept, mut at) = (NONE, p.heads[usize::from(group)]);
        while at != NONE {
            let link = &mut self.links[at as usize];
            let (this, next, common) = (at, link.next, link.mask & mask);
            at = next;
            if common != 0 {
                out.push((Want { mask: u64::from(common), node: link.node, token: link.token }, offset));
                if kills {
                    link.mask &= !common;
                }
            }
            if link.mask == 0 {
                self.free.push(this);
            } else {
                link.next = kept;
                kept = this;
            }
        }
        p.heads[usize::from(group)] = kept;
        if kept == NONE {
            p.bits[usize::from(group >> 6)] &= !(1 << (group & 63));
            self.groups -= 1;
        }
    }

    /// Everything that is wanted: address of the group and the want.
    pub fn rest(&self) -> Vec<(u64, Want)> {
        let mut all = Vec::new();
        for (page, p) in &self.pages {
            for group in (0..512).filter(|g| p.is_wanted(*g)) {
                let at = (page << PAGE) + u64::from(group) * 8;
                let wants = self.of_group(p, group);
                all.extend(wants.map(|l| (at, Want { mask: u64::from(l.mask), node: l.node, token: l.token })));
            }
        }
        all.sort_unstable_by_key(|(at, w)| (*at, w.node));
        all
    }
}

/// Of two who want the same byte only the nearer one is kept. Answers what is left for the new one.
fn nearest(
    links: &mut [Link],
    head: u32,
    (mut mask, node, token): (u8, u32, u32),
    distance: &dyn Fn(u32) -> u32,
) -> u8 {
    let mut at = head;
    while let Some(link) = links.get_mut(at as usize).filter(|_| mask != 0) {
        let common = link.mask & mask;
        if common != 0 && link.token == token {
            match distance(link.node) <= distance(node) {
                true => mask &= !common,
                // A link without bytes is dropped when the group is taken.
                false => link.mask &= !common,
            }
        }
        at = link.next;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_taken(wants: &mut MemWants, addr: u64, len: u64, expected: &[(u32, u64, i64)]) {
        let mut out = Vec::new();
        wants.take(addr, len, true, &mut out);
        let got: Vec<_> = out.iter().map(|(w, offset)| (w.node, w.mask, *offset)).collect();
        assert_eq!(got, expected, "{addr:#x}+{len}");
    }

    #[test]
    fn bytes_are_wanted_until_they_are_taken() {
        let mut wants = MemWants::default();
        wants.add(0x1006, 4, 7, 0, true, &|_| 0);
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
        wants.add(0x1ffe, 4, 1, 0, true, &|_| 0);
        assert!(wants.touches(0x1ff0, 32) && wants.touches(0x2001, 1) && !wants.touches(0x2008, 8));
        check_taken(&mut wants, 0, 1 << 20, &[(1, 0xc0, 0x1ff8), (1, 3, 0x2000)]);
    }

    #[test]
    fn the_nearer_wanter_is_kept() {
        let mut wants = RegWants::default();
        let distance = |node: u32| if node == 1 { 5 } else { 2 };
        wants.add(RegId::RAX, Want { mask: 0xff, node: 1, token: 0 }, false, &distance);
        wants.add(RegId::RAX, Want { mask: 0x0f, node: 2, token: 0 }, false, &distance);
        let mut out = Vec::new();
        wants.take(RegId::RAX, 0xff, true, &mut out);
        out.sort_by_key(|w| w.node);
        assert_eq!(out, [Want { mask: 0xf0, node: 1, token: 0 }, Want { mask: 0x0f, node: 2, token: 0 }]);
        assert_eq!(wants.any, 0);
    }
}
