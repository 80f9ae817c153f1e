//! The address space: residence, node masks, pages handed to pipes and to other processes.
//!
//! May miss: pages given to a pipe are read when the other end takes them, which can be after the call.

use super::super::call::{Call, RW_MAX};

const ENOMEM: i64 = 12;
const PAGE: u64 = 4096;

/// mincore(start, length, answers): one byte per page; answers before a hole are stored although the call fails.
pub fn mincore(call: &mut Call<'_>) {
    let pages = call.args[1].div_ceil(PAGE);
    if !call.failed() || call.failed_with(ENOMEM) {
        call.writes_anyhow(call.args[2], pages);
    }
}

/// move_pages(pid, count, addresses, nodes, status, flags): the status of the pages before a failing one is stored.
pub fn move_pages(call: &mut Call<'_>) {
    call.writes_anyhow(call.args[4], call.args[1].saturating_mul(4));
}

/// How many bytes a node mask takes whose length in bits, plus one, is in an argument: whole words.
fn node_mask(call: &Call<'_>, arg: usize) -> u64 {
    call.args[arg].saturating_sub(1).div_ceil(64).saturating_mul(8)
}

/// mbind(start, length, mode, mask, bits, flags).
pub fn mbind_mask(call: &mut Call<'_>) -> u64 {
    node_mask(call, 4)
}

/// set_mempolicy(mode, mask, bits) and get_mempolicy(mode, mask, bits, address, flags).
pub fn mempolicy_mask(call: &mut Call<'_>) -> u64 {
    node_mask(call, 2)
}

/// migrate_pages(pid, bits, from, to).
pub fn migrate_mask(call: &mut Call<'_>) -> u64 {
    node_mask(call, 1)
}

/// vmsplice(pipe, buffers, count, flags): fills the buffers from the reading end of a pipe, and reads them into the
/// writing end. Which end it is cannot be told from the arguments, so both are listed.
pub fn vmsplice(call: &mut Call<'_>) {
    let (iov, count) = (call.args[1], call.args[2]);
    call.iovec(iov, count, RW_MAX, false);
    if count <= super::super::call::IOV_MAX && iov != 0 {
        let total = call.done(RW_MAX);
        call.buffers(iov, count, total, true);
    }
}
