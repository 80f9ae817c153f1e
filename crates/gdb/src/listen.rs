//! Ways for gdb to find us.
//!
//! Over TCP only this machine can connect: whoever is connected can read the guest's memory and the recorded files.
//! Other users of this machine are not kept out by that. For a gdb that we start ourselves a Unix socket in a folder of
//! our own is better: `target remote /path/of/the/socket`, and the accepted stream goes to [`crate::serve`]. So does
//! standard input of a program that gdb started with `target remote | …`, because gdb makes it a socket.

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

/// The same for commands that do not move time, to be given after all else: not every gdb understands them.
pub const ALIASES: &str = include_str!("aliases.gdb");
