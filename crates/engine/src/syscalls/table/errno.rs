//! The error numbers that refused calls answer.

pub const EPERM: i32 = 1;
pub const EINVAL: i32 = 22;
pub const ENOSPC: i32 = 28;
pub const ENOSYS: i32 = 38;
