//! Words everyone shares: guest addresses, modes, and the messages between host and engine.
//!
//! Guarantees: plain data, no I/O, no allocation beyond `Vec` and `String`, usable inside the freestanding engine.
//! A type exists here only when at least two crates speak of it.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

pub mod config;
pub mod layout;
pub mod log;
mod look;
pub mod region;
pub mod serve;
mod start;
pub mod wire;

use core::fmt;

/// An address as the guest sees it. It is not a pointer: only `engine` may turn it into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GuestAddr(pub u64);

impl fmt::Debug for GuestAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for GuestAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for GuestAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// What the engine adds to the guest's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Mode {
    /// Nothing: the guest's own code, relocated.
    #[default]
    None = 0,
    /// The tick clock.
    Tick = 1,
    /// One execution counter per block, from which exact instruction counts follow; with a seed the tick clock too.
    Count = 2,
    /// A record per block: block id and address bases; with a seed the tick clock too.
    Trace = 3,
}

impl Mode {
    pub fn from_u8(v: u8) -> Option<Mode> {
        Some(match v {
            0 => Mode::None,
            1 => Mode::Tick,
            2 => Mode::Count,
            3 => Mode::Trace,
            _ => return None,
        })
    }
}

/// Which CPU the guest is told it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Cpu {
    /// x86-64-v2: the C library then picks string functions without AVX, which analyses can follow cheaply.
    #[default]
    V2 = 0,
    /// As the machine is, less what cannot survive translation (TSX, AMX).
    Native = 1,
}
