//! To where a register of a thread changes, forward and backward.
//!
//! A stretch is traced once to learn which instructions ran, and again to count executions of those that write the
//! register; the session goes to the first (backward: the last) of them that gave it another value. The engine need not
//! stop at each instruction for that.
//!
//! May miss: changes by a signal's frame or its return, and writes of registers that the decoder does not tell (none of the
//! general ones).

use crate::access::{Hit, Listening, go_to, next_stretch};
use crate::error::Error;
use crate::live::Live;
use crate::timeline::{Session, Stopped, read_from, registers_of, run, step, where_is};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use model::GuestAddr;
use model::serve::{Moment, Until, Why};
use std::collections::HashSet;

/// The longest instruction.
const LONGEST: usize = 15;

/// Which instructions write a general register, by hardware number.
struct Writers {
    register: u8,
    factory: InstructionInfoFactory,
}

impl Writers {
    fn new(register: u8) -> Writers {
        Writers { register, factory: InstructionInfoFactory::new() }
    }

    /// Does the instruction at `pc` write it, in the code as it lies in memory there?
    fn contain(&mut self, live: &Live, pc: u64) -> Result<bool, Error> {
        let mut code = [0; LONGEST];
        let n = read_from(live, GuestAddr(pc), &mut code)?;
        let instruction = Decoder::with_ip(64, &code[..n], pc, DecoderOptions::NONE).decode();
        let wanted = Register::RAX + u32::from(self.register);
        // The kernel's answer is not among what an instruction does.
        let answered = instruction.mnemonic() == Mnemonic::Syscall && wanted == Register::RAX;
        let info = self.factory.info(&instruction);
        let writes = |access: OpAccess| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let written =
            info.used_registers().iter().any(|r| r.register().full_register() == wanted && writes(r.access()));
        Ok(answered || written)
    }
}

impl Session {
    /// Forward to behind the instruction that gives this general register (by hardware number) of a thread another value,
    /// or to the end of the recording.
    pub fn forward_to_register(
        &mut self,
        thread: u32,
        register: u8,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        let mut length = 0;
        loop {
            let live = self.now.fork()?;
            let (end, longer) = next_stretch(self.place.moment, None, length);
            let ahead = live.fork()?;
            let (why, place, _) =
                run(&ahead, Until { moment: Some(end), blind: true, ..Until::default() }, interrupted)?;
            if why == Why::Interrupted {
                return Ok(Stopped::Interrupted);
            }
            let hit = self.listen_for(&live, place.moment, (thread, register), interrupted)?.first;
            let Some(hit) = hit else {
                self.settle(ahead, place, &why);
                if let Why::End(replayed) = why {
                    return Ok(Stopped::End(replayed));
                }
                length = longer;
                continue;
            };
            if !go_to(&live, hit, interrupted)? {
                return Ok(Stopped::Interrupted);
            }
            let before = registers_of(&live, thread)?.gpr[usize::from(register & 15)];
            let (why, place) = step(&live)?;
            let after = registers_of(&live, thread).map_or(before, |r| r.gpr[usize::from(register & 15)]);
            self.settle(live, place, &why);
            if before != after {
                return Ok(Stopped::RegisterChanged);
            }
        }
    }

    /// Backward to before the instruction that gave this register of a thread another value, or to the beginning.
    pub fn backward_to_register(
        &mut self,
        thread: u32,
        register: u8,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        let (mut high, mut length) = (self.place.moment, 0);
        while high > self.start_moment() {
            if interrupted() {
                return Ok(Stopped::Interrupted);
            }
            let (_, longer) = next_stretch(high, None, length);
            let low = Moment { tick: high.tick.saturating_sub(longer / 2), pc: 0 }.max(self.start_moment());
            let live = self.copy_at(low, interrupted)?;
            let Some(hit) = self.listen_for(&live, high, (thread, register), interrupted)?.last else {
                (high, length) = (low, longer);
                continue;
            };
            if !go_to(&live, hit, interrupted)? {
                return Ok(Stopped::Interrupted);
            }
            let place = where_is(&live)?;
            let after = live.fork()?;
            step(&after)?;
            let value = |live: &Live| registers_of(live, thread).map(|r| r.gpr[usize::from(register & 15)]);
            if value(&live)? != value(&after)? {
                self.settle(live, place, &Why::Reached);
                return Ok(Stopped::RegisterChanged);
            }
            high = place.moment;
        }
        self.seek_start()?;
        Ok(Stopped::Start)
    }

    /// The first and the last execution between a moment, at which `live` stands, and another one that may write the
    /// register of the thread.
    fn listen_for(
        &mut self,
        live: &Live,
        to: Moment,
        (thread, register): (u32, u8),
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Found, Error> {
        let executed = Listening::default().hear(live, to, interrupted)?.executed;
        let mut writers = Writers::new(register);
        let mut pcs = HashSet::new();
        for pc in executed.into_keys() {
            if writers.contain(live, pc)? {
                pcs.insert(pc);
            }
        }
        let tid = crate::timeline::threads_of(live)?.iter().find(|t| t.number == thread).map(|t| t.tid);
        let heard = Listening { writers: pcs, tid, ..Listening::default() }.hear(live, to, interrupted)?;
        Ok(Found { first: heard.first, last: heard.last })
    }
}

struct Found {
    first: Option<Hit>,
    last: Option<Hit>,
}
