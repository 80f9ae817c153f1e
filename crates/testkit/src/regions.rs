//! Which mapping an address of a native run lies in.
//!
//! Natively and under Clew the same mapping may lie elsewhere: stack, heap, libraries and anonymous mappings each move
//! by a constant, the program itself does not. A comparison therefore needs, for every native address, the mapping it
//! belongs to. Mappings are known from `/proc/PID/maps` at the program's entry and from the system calls after it.

use std::ops::Range;

/// Names one mapping of one run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RegionId {
    /// The program's own image: must not move.
    Image,
    Stack,
    /// Strings of arguments and environment above the stack's beginning: between the two lies the kernel's auxiliary
    /// vector, which Clew makes itself.
    Strings,
    Heap,
    /// The control block and thread-local variables of a thread, reached through fs.
    Tls(u32),
    /// The stack frames of one run of a signal handler: how large the frame is that the kernel puts below the interrupted
    /// one depends on the CPU's state components, of which Clew hides some.
    Handler(u32),
    /// A file or anonymous mapping, by number.
    Mapping(u32),
    /// A mapping that the program asked for at a fixed address: must not move.
    Fixed(u32),
    /// Not mapped as far as is known.
    Unknown,
}

impl RegionId {
    /// May it lie elsewhere under Clew?
    pub fn moves(self) -> bool {
        !matches!(self, RegionId::Image | RegionId::Fixed(_) | RegionId::Unknown)
    }
}

/// The mappings of one run, the latest last.
#[derive(Clone, Debug)]
pub struct Regions {
    image: Range<u64>,
    stack_end: u64,
    strings: u64,
    heap: Range<u64>,
    mappings: Vec<(Range<u64>, RegionId)>,
    /// Those that are unmapped again.
    gone: Vec<(Range<u64>, RegionId)>,
    next: u32,
}

/// A stack may grow this far below its end.
const STACK_REACH: u64 = 64 << 20;

impl Regions {
    pub fn new(image: Range<u64>) -> Regions {
        Regions { image, stack_end: 0, strings: 0, heap: 0..0, mappings: Vec::new(), gone: Vec::new(), next: 0 }
    }

    pub fn image(&self) -> Range<u64> {
        self.image.clone()
    }

    /// Takes the mappings at the program's entry. Segments of one file move together, so they are one region.
    pub fn initial(&mut self, maps: &str, strings: u64) {
        self.strings = strings;
        let mut last_file = "";
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let Some((low, high)) = words.next().and_then(|r| r.split_once('-')) else { continue };
            let hex = |s| u64::from_str_radix(s, 16).expect("the kernel writes hexadecimal");
            let range = hex(low)..hex(high);
            match words.nth(4).unwrap_or("") {
                "[stack]" => self.stack_end = range.end,
                "[heap]" => self.heap = range,
                file => {
                    if file.is_empty() || file != last_file {
                        self.next += 1;
                    }
                    last_file = file;
                    self.mappings.push((range, RegionId::Mapping(self.next)));
                }
            }
        }
    }

    /// Follows a system call that changes mappings.
    pub fn system_call(&mut self, nr: u64, args: &[u64; 6], result: u64) {
        const MMAP: u64 = 9;
        const MUNMAP: u64 = 11;
        const BRK: u64 = 12;
        const MREMAP: u64 = 25;
        const FIXED: u64 = 0x10 | 0x10_0000;
        if result > u64::MAX - 4096 {
            return;
        }
        match nr {
            MMAP => {
                self.next += 1;
                let fixed = args[3] & FIXED != 0;
                let id = if fixed { RegionId::Fixed(self.next) } else { RegionId::Mapping(self.next) };
                self.mappings.push((result..result + args[1].next_multiple_of(4096), id));
            }
            MREMAP => {
                self.next += 1;
                self.mappings.push((result..result + args[2].next_multiple_of(4096), RegionId::Mapping(self.next)));
            }
            MUNMAP => {
                let hole = args[0]..args[0] + args[1].next_multiple_of(4096);
                let outside = |r: &Range<u64>| r.start < hole.start || r.end > hole.end;
                self.gone.extend(self.mappings.iter().filter(|(r, _)| !outside(r)).cloned());
                self.mappings.retain(|(r, _)| outside(r));
            }
            BRK if self.heap.start == 0 => self.heap = result..result,
            BRK => self.heap.end = self.heap.end.max(result),
            _ => {}
        }
    }

    /// The mapping that holds `addr`, the latest if several do.
    pub fn find(&self, addr: u64) -> RegionId {
        if self.image.contains(&addr) {
            return RegionId::Image;
        }
        if addr < self.stack_end && self.strings != 0 && addr >= self.strings {
            return RegionId::Strings;
        }
        if addr < self.stack_end && addr >= self.stack_end - STACK_REACH {
            return RegionId::Stack;
        }
        if let Some((_, id)) = self.mappings.iter().rev().find(|(r, _)| r.contains(&addr)) {
            return *id;
        }
        if self.heap.contains(&addr) { RegionId::Heap } else { RegionId::Unknown }
    }

    /// The extent of a mapping, even if it is unmapped by now.
    pub fn extent(&self, id: RegionId) -> Range<u64> {
        let all = self.mappings.iter().chain(&self.gone).filter(|(_, i)| *i == id).map(|(r, _)| r);
        let low = all.clone().map(|r| r.start).min().unwrap_or(0);
        low..all.map(|r| r.end).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
555555554000-555555555000 r--p 00000000 08:01 1 /tmp/program
7ffff7d00000-7ffff7d28000 r--p 00000000 08:01 2 /lib/libc.so.6
7ffff7d28000-7ffff7e80000 r-xp 00028000 08:01 2 /lib/libc.so.6
7ffff7e80000-7ffff7e8d000 rw-p 00000000 00:00 0
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]
";

    fn check(regions: &Regions, addr: u64, expected: RegionId) {
        assert_eq!(regions.find(addr), expected, "{addr:#x}");
    }

    #[test]
    fn mappings_are_found_and_followed() {
        let mut r = Regions::new(0x555555554000..0x555555559000);
        r.initial(MAPS, 0x7fffffffe000);
        check(&r, 0x555555558010, RegionId::Image);
        check(&r, 0x7ffff7d00000, r.find(0x7ffff7d28000));
        assert_ne!(r.find(0x7ffff7e80000), r.find(0x7ffff7d28000), "anonymous memory moves by itself");
        check(&r, 0x7fffffff0000, RegionId::Stack);
        check(&r, 0x7fffffffe010, RegionId::Strings);
        check(&r, 0x7ffffe000000, RegionId::Stack);
        r.system_call(9, &[0, 5000, 3, 0x22, 0, 0], 0x7ffff7000000);
        let new = r.find(0x7ffff7001fff);
        assert!(new.moves());
        r.system_call(11, &[0x7ffff7000000, 5000, 0, 0, 0, 0], 0);
        check(&r, 0x7ffff7001fff, RegionId::Unknown);
        r.system_call(9, &[0x10000000, 4096, 7, 0x100022, 0, 0], 0x10000000);
        assert!(!r.find(0x10000000).moves());
        r.system_call(12, &[0; 6], 0x55555555a000);
        r.system_call(12, &[0x55555557b000, 0, 0, 0, 0, 0], 0x55555557b000);
        check(&r, 0x55555555a010, RegionId::Heap);
    }
}
