//! System V messages, semaphores and shared memory, and POSIX message queues.
//!
//! May miss: the arrays of `GETALL` and `SETALL`, whose length only the semaphore set knows.

use super::super::call::Call;
use super::super::structs::{MSGINFO, MSQID, SEMID, SEMINFO, SHM_INFO, SHMID, SHMINFO, Struct};

const IPC_SET: u64 = 1;
const IPC_STAT: u64 = 2;
const IPC_INFO: u64 = 3;
const SHM_STAT: u64 = 13;
const SHM_INFO_COMMAND: u64 = 14;
const SHM_STAT_ANY: u64 = 15;
const MSG_STAT: u64 = 11;
const MSG_INFO: u64 = 12;
const MSG_STAT_ANY: u64 = 13;
const SEM_STAT: u64 = 18;
const SEM_INFO: u64 = 19;
const SEM_STAT_ANY: u64 = 20;
pub const GETALL: u64 = 13;
pub const SETALL: u64 = 17;

fn writes(call: &mut Call<'_>, arg: usize, what: Struct) {
    call.writes(call.args[arg], what.size.into());
}

/// shmctl(id, command, buffer).
pub fn shmctl(call: &mut Call<'_>) {
    match call.int(1) {
        IPC_SET => call.reads(call.args[2], SHMID.size.into()),
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => writes(call, 2, SHMID),
        IPC_INFO => writes(call, 2, SHMINFO),
        SHM_INFO_COMMAND => writes(call, 2, SHM_INFO),
        _ => {}
    }
}

/// msgctl(id, command, buffer).
pub fn msgctl(call: &mut Call<'_>) {
    match call.int(1) {
        IPC_SET => call.reads(call.args[2], MSQID.size.into()),
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => writes(call, 2, MSQID),
        IPC_INFO | MSG_INFO => writes(call, 2, MSGINFO),
        _ => {}
    }
}

/// semctl(id, index, command, buffer or value).
pub fn semctl(call: &mut Call<'_>) {
    match call.int(2) {
        IPC_SET => call.reads(call.args[3], SEMID.size.into()),
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => writes(call, 3, SEMID),
        IPC_INFO | SEM_INFO => writes(call, 3, SEMINFO),
        _ => {}
    }
}

/// msgsnd(id, message, size, flags): the size does not count the type word in front.
pub fn msgsnd(call: &mut Call<'_>) -> u64 {
    call.args[2].saturating_add(8)
}

/// msgrcv(id, message, size, type, flags).
pub fn msgrcv(call: &mut Call<'_>) -> u64 {
    call.done(call.args[2]).saturating_add(8)
}

/// mq_open(name, flags, mode, attributes): the attributes count only for a new queue.
pub fn mq_open(call: &mut Call<'_>) {
    const O_CREAT: u64 = 0o100;
    if call.args[1] & O_CREAT != 0 {
        call.reads(call.args[3], 64);
    }
}

/// mq_notify(queue, event): notification by thread carries a 32-byte cookie behind its value.
pub fn mq_notify(call: &mut Call<'_>) {
    const SIGEV_THREAD: u64 = 2;
    let event = call.args[1];
    call.reads(event, 64);
    if event != 0 && call.word(event.wrapping_add(12), 4) == SIGEV_THREAD {
        let cookie = call.word(event, 8);
        call.reads(cookie, 32);
    }
}
