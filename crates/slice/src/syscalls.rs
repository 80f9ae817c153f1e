//! System calls as slices see them: what they take and where it comes from.
//!
//! What a call wrote into the guest is in the recording; here is only what it read. The number of arguments is that of the
//! engine's table of calls; what is not listed is taken to depend on all six registers. Of memory that calls read only what
//! they pass on counts.

use crate::registers::RegId;
use crate::window::CallEffects;

const RDI: RegId = RegId(7);
const RSI: RegId = RegId(6);
const RDX: RegId = RegId(2);
const R10: RegId = RegId(10);
const R8: RegId = RegId(8);
const R9: RegId = RegId(9);
const ARGUMENTS: [RegId; 6] = [RDI, RSI, RDX, R10, R8, R9];

const WRITE: u64 = 1;
const MMAP: u64 = 9;
const PWRITE: u64 = 18;
const MREMAP: u64 = 25;
const SENDTO: u64 = 44;

/// How many arguments the calls from 0 on take.
const COUNTS: [&[u8]; 4] = [
    b"3331222336321440344332150533333312022130433366332323345550031421334124533211223211221221232233312221",
    b"1403011002000222233331111222432223112223232231112221003215212101252214221323215430000003555444333222",
    b"2163312153313100531044342112224144320635415523455453203244345343453433651236444646321442442132155455",
    b"25453214236653345332535133666421564",
];

/// The registers that a call takes its arguments from.
pub fn argument_registers(nr: u64) -> &'static [RegId] {
    let row = COUNTS.get((nr / 100) as usize).copied().unwrap_or_default();
    let count = row.get((nr % 100) as usize).map_or(6, |digit| usize::from(digit - b'0'));
    &ARGUMENTS[..count]
}

/// Memory whose contents the call passes on.
pub fn reads(call: &CallEffects) -> Option<(u64, u64)> {
    let written = u64::try_from(call.result).ok().filter(|n| *n > 0)?;
    matches!(call.nr, WRITE | PWRITE | SENDTO).then_some((call.args[1], written))
}

/// Memory that is new because of the call: a mapping.
pub fn maps(call: &CallEffects) -> Option<(u64, u64)> {
    let at = u64::try_from(call.result).ok()?;
    match call.nr {
        MMAP => Some((at, call.args[1].next_multiple_of(4096))),
        MREMAP => {
            let [_, old, new, ..] = call.args.map(|n| n.next_multiple_of(4096));
            (new > old).then(|| (at + old, new - old))
        }
        _ => None,
    }
}

/// Memory that now lies elsewhere: its old place, its new one, and its length.
pub fn moves(call: &CallEffects) -> Option<(u64, u64, u64)> {
    let to = u64::try_from(call.result).ok()?;
    let [from, old, new, ..] = call.args;
    (call.nr == MREMAP && to != from).then(|| (from, to, old.min(new).next_multiple_of(4096)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(nr: u64, expected: usize) {
        assert_eq!(argument_registers(nr).len(), expected, "call {nr}");
    }

    #[test]
    fn calls_take_as_many_registers_as_they_have_arguments() {
        // read, mmap, pipe, getpid, exit, gettid, futex, exit_group, openat, getrandom; one that does not exist.
        for (nr, count) in [(0, 3), (9, 6), (22, 1), (39, 0), (60, 1), (186, 0), (202, 6), (231, 1), (257, 4), (318, 3)]
        {
            check_count(nr, count);
        }
        check_count(4000, 6);
    }

    #[test]
    fn a_mapping_that_grew_elsewhere_is_moved_and_new_behind() {
        let call = |result| CallEffects {
            nr: MREMAP,
            args: [0x1000, 0x2000, 0x5000, 1, 0, 0],
            result,
            ..CallEffects::default()
        };
        assert_eq!(
            (moves(&call(0x9000)), maps(&call(0x9000))),
            (Some((0x1000, 0x9000, 0x2000)), Some((0xb000, 0x3000)))
        );
        assert_eq!((moves(&call(0x1000)), maps(&call(0x1000))), (None, Some((0x3000, 0x3000))));
        assert_eq!((moves(&call(-12)), maps(&call(-12))), (None, None));
    }
}
