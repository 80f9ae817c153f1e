//! Ways for gdb to find us.
//!
//! Over TCP only this machine can connect: whoever is connected can read the guest's memory and the recorded files.
//! For a gdb that we start ourselves, one end of a `UnixStream::pair` can be given to [`crate::serve`] and the other to
//! gdb as `target remote | …` or by descriptor.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

use crate::{
    debuggee::Debuggee,
    session::{End, ServeError, serve},
};

/// Opens a port on this machine for debuggers; 0 takes any that is free.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Waits for the next client and serves it.
pub fn serve_next(listener: &TcpListener, debuggee: &mut dyn Debuggee) -> Result<End, ServeError> {
    let (mut stream, _) = listener.accept()?;
    // Packets are short and each waits for its answer.
    stream.set_nodelay(true)?;
    serve(&mut stream, debuggee)
}

/// gdb commands to give to a gdb that we start (one per line, for `-ex` or a file): short names for the monitor
/// commands. Those that move time are followed by a step, which the server answers at once with the new place.
pub const COMMANDS: &str = include_str!("commands.gdb");
