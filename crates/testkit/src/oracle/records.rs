//! Reads the records that the stepper writes; the `put_*` functions in `through.h` are the other half of this file.

use super::access::{Machine, Vectors};
use std::io::Read;

/// One record.
pub enum Record {
    /// The text of `/proc/PID/maps` at the program's entry, and where the strings of arguments and environment begin.
    Maps {
        text: String,
        strings: u64,
    },
    /// Vector state before the next instruction of the thread.
    Vectors {
        thread: u32,
        vectors: Box<Vectors>,
    },
    /// A completed instruction, or one iteration of a rep string instruction.
    Insn {
        thread: u32,
        machine: Machine,
        code: [u8; 16],
    },
    Syscall {
        nr: u64,
        args: [u64; 6],
        result: u64,
    },
    Signal {
        thread: u32,
        signo: u32,
        pc: u64,
    },
    End {
        status: u32,
    },
}

/// The stream of records. A stream that breaks off is the stepper's failure, which its exit status tells.
pub struct Records<R> {
    from: R,
}

impl<R: Read> Records<R> {
    pub fn new(from: R) -> Records<R> {
        Records { from }
    }

    pub fn next(&mut self) -> Option<Record> {
        let [tag] = self.bytes()?;
        Some(match tag {
            b'M' => {
                let mut text = vec![0; self.u32()? as usize];
                self.from.read_exact(&mut text).ok()?;
                Record::Maps { text: String::from_utf8_lossy(&text).into_owned(), strings: self.u64()? }
            }
            b'V' => {
                let mut vectors = Box::<Vectors>::default();
                for zmm in &mut vectors.zmm {
                    *zmm = self.bytes()?;
                }
                for k in &mut vectors.k {
                    *k = self.u64()?;
                }
                for mm in &mut vectors.mm {
                    *mm = self.bytes()?;
                }
                Record::Vectors { thread: self.u32()?, vectors }
            }
            b'I' => {
                let thread = self.u32()?;
                let mut machine = Machine::default();
                for gpr in &mut machine.gpr {
                    *gpr = self.u64()?;
                }
                machine.rip = self.u64()?;
                machine.rflags = self.u64()?;
                machine.fs_base = self.u64()?;
                machine.gs_base = self.u64()?;
                Record::Insn { thread, machine, code: self.bytes()? }
            }
            b'S' => {
                self.u32()?;
                let nr = self.u64()?;
                let mut args = [0; 6];
                for arg in &mut args {
                    *arg = self.u64()?;
                }
                Record::Syscall { nr, args, result: self.u64()? }
            }
            b'G' => Record::Signal { thread: self.u32()?, signo: self.u32()?, pc: self.u64()? },
            b'E' => Record::End { status: self.u32()? },
            other => panic!("the stepper wrote an unknown record {other:#x}"),
        })
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes()?))
    }
}
