//! Files: fcntl, file handles, extended attributes by structure, mount configuration, quotas.
//!
//! Guarantees: a command of fcntl or quotactl that is not named here has no pointer, up to Linux 6.12.

use super::super::call::{Call, PATH_MAX};
use super::super::structs::{FLOCK, OWNER};

const EOVERFLOW: i64 = 75;

/// Commands of fcntl(2) that have a pointer, or that can sleep.
pub mod fcntl_cmd {
    pub const GETLK: u64 = 5;
    pub const SETLK: u64 = 6;
    pub const SETLKW: u64 = 7;
    pub const SETOWN_EX: u64 = 15;
    pub const GETOWN_EX: u64 = 16;
    pub const GETOWNER_UIDS: u64 = 17;
    pub const OFD_GETLK: u64 = 36;
    pub const OFD_SETLK: u64 = 37;
    pub const OFD_SETLKW: u64 = 38;
    pub const GET_RW_HINT: u64 = 1035;
    pub const SET_RW_HINT: u64 = 1036;
    pub const GET_FILE_RW_HINT: u64 = 1037;
    pub const SET_FILE_RW_HINT: u64 = 1038;
}

/// fcntl(descriptor, command, argument).
pub fn fcntl(call: &mut Call<'_>) {
    use fcntl_cmd::*;
    let addr = call.args[2];
    match call.int(1) {
        GETLK | OFD_GETLK => call.both(addr, FLOCK.size.into()),
        SETLK | SETLKW | OFD_SETLK | OFD_SETLKW => call.reads(addr, FLOCK.size.into()),
        SETOWN_EX => call.reads(addr, OWNER.size.into()),
        GETOWN_EX | GETOWNER_UIDS => call.writes(addr, 8),
        GET_RW_HINT | GET_FILE_RW_HINT => call.writes(addr, 8),
        SET_RW_HINT | SET_FILE_RW_HINT => call.reads(addr, 8),
        _ => {}
    }
}

/// name_to_handle_at(folder, name, handle, mount id, flags): if the handle does not fit, its header and the mount id
/// are stored all the same.
pub fn name_to_handle_at(call: &mut Call<'_>) {
    const UNIQUE_MOUNT_ID: u64 = 1;
    let handle = call.args[2];
    call.reads(handle, 8);
    let id_len = if call.args[4] & UNIQUE_MOUNT_ID != 0 { 8 } else { 4 };
    if call.failed_with(EOVERFLOW) {
        call.writes_anyhow(handle, 8);
        call.writes_anyhow(call.args[3], id_len);
        return;
    }
    if handle != 0 {
        let len = call.room(handle).min(128);
        call.writes(handle, 8 + len);
    }
    call.writes(call.args[3], id_len);
}

/// open_by_handle_at(mount, handle, flags).
pub fn handle_length(call: &mut Call<'_>) -> u64 {
    8 + call.word(call.args[1], 4).min(128)
}

/// setxattrat(folder, name, flags, attribute, value and its size, size of that).
pub fn setxattrat(call: &mut Call<'_>) {
    let (value, size) = xattr_value(call);
    call.reads(value, size);
}

/// getxattrat(folder, name, flags, attribute, value and its size, size of that).
pub fn getxattrat(call: &mut Call<'_>) {
    let (value, size) = xattr_value(call);
    let len = call.done(size);
    call.writes(value, len);
}

fn xattr_value(call: &mut Call<'_>) -> (u64, u64) {
    let arguments = call.args[4];
    call.reads(arguments, call.args[5]);
    if arguments == 0 || call.args[5] < 16 {
        return (0, 0);
    }
    (call.word(arguments, 8), call.word(arguments.wrapping_add(8), 4))
}

/// statmount(request, buffer, size, flags): the answer begins with its own size.
pub fn statmount_length(call: &mut Call<'_>) -> u64 {
    let (buffer, size) = (call.args[1], call.args[2]);
    match call.result {
        Some(0) => call.word(buffer, 4).min(size),
        _ => size,
    }
}

/// fsconfig(context, command, key, value, number).
pub fn fsconfig(call: &mut Call<'_>) {
    let value = call.args[3];
    match call.int(1) {
        1 => call.text(value, 256),
        2 => call.reads(value, call.int(4)),
        3 | 4 => call.text(value, PATH_MAX),
        _ => {}
    }
}

/// quotactl(command, device, id, buffer).
pub fn quotactl(call: &mut Call<'_>) {
    quota(call, call.args[0], call.args[3]);
}

/// quotactl_fd(descriptor, command, id, buffer).
pub fn quotactl_fd(call: &mut Call<'_>) {
    quota(call, call.args[1], call.args[3]);
}

fn quota(call: &mut Call<'_>, command: u64, addr: u64) {
    match (command & 0xffff_ffff) >> 8 {
        0x80_0002 => call.text(addr, PATH_MAX),
        0x80_0004 => call.writes(addr, 4),
        0x80_0005 => call.writes(addr, 24),
        0x80_0006 => call.reads(addr, 24),
        0x80_0007 => call.writes(addr, 72),
        0x80_0008 => call.reads(addr, 72),
        // These two find the next quota from the id and store the id found.
        0x80_0009 => call.writes(addr, 72),
        0x5809 => call.writes(addr, 112),
        0x5801 | 0x5802 | 0x5806 => call.reads(addr, 4),
        0x5803 => call.writes(addr, 112),
        0x5804 => call.reads(addr, 112),
        0x5805 => call.writes(addr, 80),
        0x5808 => call.both(addr, 160),
        _ => {}
    }
}

/// sysfs(option, number or name, buffer).
pub fn sysfs(call: &mut Call<'_>) {
    match call.int(0) {
        1 => call.text(call.args[1], PATH_MAX),
        2 => {
            // The name of a file system type, all of which are short; its length shows only once it is there.
            let addr = call.args[2];
            let len = if call.result.is_none() { 64 } else { call.text_len(addr, 64) };
            call.writes(addr, len);
        }
        _ => {}
    }
}
