//! The CPU the guest is told it runs on.

pub mod cpuid;
pub mod hwcap;
