//! Packets on a byte stream: framing, checksums, acknowledgements, and Ctrl-C.
//!
//! This is below `gdbstub`, which could do the framing itself but gives up the session at the first bad byte and cannot
//! repeat an answer. Guarantees: whatever the client sends, memory stays bounded, nothing panics, and a client that is
//! gone or no longer reads is noticed.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// A connection to a debugger.
pub trait Stream: Read + Write {
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        TcpStream::set_nonblocking(self, on)
    }

    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        TcpStream::set_write_timeout(self, limit)
    }
}

impl Stream for UnixStream {
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        UnixStream::set_nonblocking(self, on)
    }

    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        UnixStream::set_write_timeout(self, limit)
    }
}

/// The longest packet that is accepted; gdb is told so and asks for no more.
pub const PACKET_SIZE: usize = 0x1_0000;
/// How much a client may send ahead while the guest runs.
const AHEAD: usize = 4 * PACKET_SIZE;
/// A client that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the stream is looked at while the guest runs: short for a person, long for a machine.
const GLANCE: Duration = Duration::from_millis(5);
const CTRL_C: u8 = 3;

/// What the client sent.
#[derive(PartialEq, Eq, Debug)]
pub enum Incoming {
    /// The body of a packet with a right checksum, already acknowledged.
    Packet(Vec<u8>),
    Interrupt,
    /// The client is gone.
    Closed,
}

/// The packets of one connection.
pub struct Wire<'s> {
    stream: &'s mut dyn Stream,
    input: VecDeque<u8>,
    acknowledges: bool,
    last_sent: Vec<u8>,
    last_glance: Option<Instant>,
    closed: bool,
}

impl<'s> Wire<'s> {
    pub fn new(stream: &'s mut dyn Stream) -> io::Result<Wire<'s>> {
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nonblocking(false)?;
        Ok(Wire {
            stream,
            input: VecDeque::new(),
            acknowledges: true,
            last_sent: Vec::new(),
            last_glance: None,
            closed: false,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// From the next packet on, neither side acknowledges.
    pub fn stop_acknowledging(&mut self) {
        self.acknowledges = false;
    }

    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        self.last_sent.clear();
        self.last_sent.push(b'$');
        self.last_sent.extend(body);
        self.last_sent.extend(format!("#{:02x}", checksum(body)).bytes());
        let packet = std::mem::take(&mut self.last_sent);
        let result = self.put(&packet);
        self.last_sent = packet;
        result
    }

    /// Waits for something from the client.
    pub fn next(&mut self) -> io::Result<Incoming> {
        loop {
            match self.byte()? {
                None => return Ok(Incoming::Closed),
                Some(CTRL_C) => return Ok(Incoming::Interrupt),
                Some(b'-') if self.acknowledges => {
                    let again = self.last_sent.clone();
                    self.put(&again)?;
                }
                Some(b'$') => {
                    if let Some(packet) = self.packet()? {
                        return Ok(packet);
                    }
                }
                // Acknowledgements, and noise between packets.
                Some(_) => {}
            }
        }
    }

    /// The rest of a packet. `None`: it was damaged or too long, and the client was asked to send it again.
    fn packet(&mut self) -> io::Result<Option<Incoming>> {
        let mut body = Vec::new();
        let mut too_long = false;
        loop {
            match self.byte()? {
                None => return Ok(Some(Incoming::Closed)),
                Some(b'#') => break,
                // An unescaped `$` can only be the beginning of another packet: the end of this one was lost.
                Some(b'$') => body.clear(),
                Some(_) if body.len() == PACKET_SIZE - 4 => too_long = true,
                Some(byte) => body.push(byte),
            }
        }
        let (Some(high), Some(low)) = (self.byte()?, self.byte()?) else { return Ok(Some(Incoming::Closed)) };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let right = matches!((digit(high), digit(low)), (Some(h), Some(l)) if h << 4 | l == u32::from(checksum(&body)));
        if self.acknowledges {
            self.put(if right && !too_long { b"+" } else { b"-" })?;
        }
        Ok((right && !too_long).then_some(Incoming::Packet(body)))
    }

    /// Whether the client pressed Ctrl-C or is gone, without waiting. What else it sent is kept.
    pub fn interrupted(&mut self) -> bool {
        if self.closed {
            return true;
        }
        let now = Instant::now();
        if self.last_glance.is_some_and(|last| now.duration_since(last) < GLANCE) {
            return false;
        }
        self.last_glance = Some(now);
        self.glance();
        self.take_interrupt() || self.closed
    }

    fn glance(&mut self) {
        if self.input.len() >= AHEAD {
            return;
        }
        if self.stream.set_nonblocking(true).is_err() {
            self.closed = true;
            return;
        }
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(n) => self.input.extend(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.closed = true,
        }
        self.closed |= self.stream.set_nonblocking(false).is_err();
    }

    /// Removes the first Ctrl-C that is not part of a packet.
    fn take_interrupt(&mut self) -> bool {
        let mut at = 0;
        while let Some(byte) = self.input.get(at) {
            match byte {
                &CTRL_C => {
                    self.input.remove(at);
                    return true;
                }
                b'$' => match self.input.iter().skip(at).position(|b| *b == b'#') {
                    Some(length) => at += length + 3,
                    None => return false,
                },
                _ => at += 1,
            }
        }
        false
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        while self.input.is_empty() && !self.closed {
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(n) => self.input.extend(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_gone(&e) => self.closed = true,
                Err(e) => return Err(e),
            }
        }
        Ok(self.input.pop_front())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write_all(bytes).and_then(|()| self.stream.flush()) {
            // Also a client that does not read: there is nobody to talk to.
            Err(e) if is_gone(&e) || matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.closed = true;
                self.input.clear();
                Ok(())
            }
            result => result,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof
            | ErrorKind::WriteZero
    )
}

pub fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a wire makes of `sent`, and what it answers.
    fn check_incoming(sent: &[u8], expected: &[Incoming], answers: &[u8]) {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(sent).unwrap();
        there.shutdown(std::net::Shutdown::Write).unwrap();
        let mut wire = Wire::new(&mut here).unwrap();
        for incoming in expected {
            assert_eq!(wire.next().unwrap(), *incoming);
        }
        assert_eq!(wire.next().unwrap(), Incoming::Closed);
        drop(here);
        let mut answered = Vec::new();
        there.read_to_end(&mut answered).unwrap();
        assert_eq!(String::from_utf8_lossy(&answered), String::from_utf8_lossy(answers));
    }

    fn packet(body: &str) -> Incoming {
        Incoming::Packet(body.into())
    }

    #[test]
    fn packets_are_taken_out_of_noise() {
        check_incoming(b"+++\x01xyz$g#67+\x03$?#3f", &[packet("g"), Incoming::Interrupt, packet("?")], b"++");
    }

    #[test]
    fn a_damaged_packet_is_asked_for_again() {
        check_incoming(b"$g#00$g#zz$g#67", &[packet("g")], b"--+");
    }

    #[test]
    fn a_packet_whose_end_was_lost_gives_way_to_the_next() {
        check_incoming(b"$m100$g#67", &[packet("g")], b"+");
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused_and_forgotten() {
        let mut sent = vec![b'$'];
        sent.extend(vec![b'a'; 3 * PACKET_SIZE]);
        sent.extend(b"#00$g#67");
        check_incoming(&sent, &[packet("g")], b"-+");
    }

    #[test]
    fn a_packet_cut_short_by_the_end_is_no_packet() {
        check_incoming(b"$g", &[], b"");
        check_incoming(b"$g#6", &[], b"");
    }

    #[test]
    fn ctrl_c_inside_a_packet_is_data() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"+$X0,1:\x03#00\x03$g").unwrap();
        let mut wire = Wire::new(&mut here).unwrap();
        wire.glance();
        assert!(wire.take_interrupt());
        assert!(!wire.take_interrupt());
        assert_eq!(wire.input, b"+$X0,1:\x03#00$g");
    }

    #[test]
    fn an_answer_is_repeated_on_request() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"-").unwrap();
        there.shutdown(std::net::Shutdown::Write).unwrap();
        let mut wire = Wire::new(&mut here).unwrap();
        wire.send(b"OK").unwrap();
        assert_eq!(wire.next().unwrap(), Incoming::Closed);
        drop(here);
        let mut answered = Vec::new();
        there.read_to_end(&mut answered).unwrap();
        assert_eq!(answered, b"$OK#9a$OK#9a");
    }
}
