//! One trace ring being read: a thread that takes buffers, decodes them and gives them back.
//!
//! The engine waits when all buffers are full, so a reader never stops before the ring ends: after damage it goes on taking
//! buffers without looking at them, and says so in the totals. Only a ring whose own counts make no sense (a wild store of
//! the guest) is given up; the engine then waits until the session is dropped.

use crate::hub::Hub;
use crate::launch::Traces;
use crate::run::TraceTotals;
use crate::running::Event;
use model::wire::BlockDef;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use trace::checksum::Checksum;
use trace::chunk::ChunkSink;
use trace::consume::Consumer;
use trace::decode::Decoder;
use trace::event::Sink;
use trace::ring::{RingReader, Turn};

/// How long a reader waits before it looks again whether its ring has been abandoned.
const PATIENCE: Duration = Duration::from_millis(50);

/// A ring that is being read.
pub(crate) struct Stream {
    inbox: Arc<Inbox>,
    reader: JoinHandle<()>,
}

/// What the hub tells a reader.
#[derive(Default)]
struct Inbox {
    definitions: Mutex<Vec<BlockDef>>,
    /// Nothing more will be written: the process or the image is gone.
    ended: AtomicBool,
}

impl Stream {
    /// Starts reading; `known` are the definitions that came before the ring.
    pub fn open(
        pid: u32,
        fd: OwnedFd,
        known: Vec<BlockDef>,
        traces: &mut Traces,
        hub: &Arc<Hub>,
        events: Sender<Event>,
    ) -> io::Result<Stream> {
        let ring = RingReader::open(&fd).map_err(io::Error::other)?;
        let inbox = Arc::new(Inbox { definitions: Mutex::new(known), ended: AtomicBool::new(false) });
        let decoding = match traces {
            Traces::Totals => Decoding::Fast(Box::default()),
            Traces::Both => Decoding::Both(Box::default()),
            Traces::Events(make) => Decoding::Events(Box::new((Decoder::new(), Checksum::default(), make(pid)))),
            Traces::Chunks(make) => Decoding::Chunks(Box::new((Consumer::new(), make(pid)))),
        };
        let totals = TraceTotals { pid, ..TraceTotals::default() };
        let (hub, theirs) = (hub.clone(), inbox.clone());
        let reader = std::thread::Builder::new().name("clew-trace".into()).spawn(move || {
            let totals = Reader { ring, inbox: theirs, decoding, totals, hub }.read();
            // Nobody listens when the session was dropped.
            let _ = events.send(Event::Trace(totals));
        })?;
        Ok(Stream { inbox, reader })
    }

    /// Definitions of blocks that later buffers may use.
    pub fn define(&self, definitions: &[BlockDef]) {
        self.inbox.lock().extend_from_slice(definitions);
    }

    /// Nothing more will be written.
    pub fn end(&self) {
        self.inbox.ended.store(true, Ordering::Release);
    }

    /// Ends it and waits until everything that was handed over has been read.
    pub fn finish(self) {
        self.end();
        // A panic in the reader was turned into damage already.
        let _ = self.reader.join();
    }
}

impl Inbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<BlockDef>> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Reader {
    ring: RingReader,
    inbox: Arc<Inbox>,
    decoding: Decoding,
    totals: TraceTotals,
    hub: Arc<Hub>,
}

impl Reader {
    fn read(mut self) -> TraceTotals {
        loop {
            // Looked at before the ring is, so that whatever was handed over before the end is still found.
            let ended = self.inbox.ended.load(Ordering::Acquire);
            match self.ring.wait(if ended { Duration::ZERO } else { PATIENCE }) {
                Ok(Turn::Buffer(buffer)) => {
                    // The definitions were sent before the buffer was handed over, so they have arrived.
                    self.hub.drain();
                    let definitions = std::mem::take(&mut *self.inbox.lock());
                    self.totals.bytes += buffer.len() as u64;
                    self.totals.buffers += 1;
                    if self.totals.damage.is_none() {
                        self.totals.damage = decode(&mut self.decoding, &definitions, &buffer);
                    }
                }
                Ok(Turn::TimedOut) if ended => break,
                Ok(Turn::TimedOut) => {}
                Ok(Turn::Closed) => break,
                Err(error) => {
                    self.totals.damage.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        let checksum = self.decoding.checksum();
        self.totals.instructions = checksum.instructions;
        self.totals.accesses = checksum.accesses;
        self.totals.checksum = checksum.digest();
        self.totals
    }
}

/// Decodes one buffer; gives what is wrong, if anything.
fn decode(decoding: &mut Decoding, definitions: &[BlockDef], bytes: &[u8]) -> Option<String> {
    // Should a decoder be wrong, the guest must still get its buffers back.
    let decoded = catch_unwind(AssertUnwindSafe(|| decoding.buffer(definitions, bytes)));
    match decoded {
        Ok(Ok(())) => None,
        Ok(Err(damage)) => Some(damage),
        Err(_) => Some("the decoder failed".to_owned()),
    }
}

enum Decoding {
    Fast(Box<Consumer>),
    Both(Box<(Consumer, Decoder, Checksum)>),
    Events(Box<(Decoder, Checksum, Box<dyn Sink + Send>)>),
    Chunks(Box<(Consumer, Box<dyn ChunkSink + Send>)>),
}

impl Decoding {
    fn buffer(&mut self, definitions: &[BlockDef], bytes: &[u8]) -> Result<(), String> {
        match self {
            Decoding::Fast(consumer) => {
                for def in definitions {
                    consumer.block(def).map_err(|e| e.to_string())?;
                }
                consumer.buffer(bytes, |_| {}).map_err(|e| e.to_string())
            }
            Decoding::Chunks(parts) => {
                let (consumer, sink) = &mut **parts;
                for def in definitions {
                    consumer.block(def).map_err(|e| e.to_string())?;
                }
                consumer.buffer(bytes, |chunk| sink.chunk(chunk)).map_err(|e| e.to_string())
            }
            Decoding::Both(parts) => {
                let (consumer, decoder, checksum) = &mut **parts;
                for def in definitions {
                    consumer.block(def).and_then(|()| decoder.block(def)).map_err(|e| e.to_string())?;
                }
                let fast = consumer.buffer(bytes, |_| {});
                let exact = decoder.buffer(bytes, &mut |event: &trace::event::Event| checksum.event(event));
                fast.and(exact).map_err(|e| e.to_string())?;
                match consumer.checksum() == *checksum {
                    true => Ok(()),
                    false => Err(format!("the decoders disagree: {:?} and {checksum:?}", consumer.checksum())),
                }
            }
            Decoding::Events(parts) => {
                let (decoder, checksum, sink) = &mut **parts;
                for def in definitions {
                    decoder.block(def).map_err(|e| e.to_string())?;
                }
                let mut both = |event: &trace::event::Event| {
                    checksum.event(event);
                    sink.event(event);
                };
                decoder.buffer(bytes, &mut both).map_err(|e| e.to_string())
            }
        }
    }

    fn checksum(&self) -> Checksum {
        match self {
            Decoding::Fast(consumer) => consumer.checksum(),
            Decoding::Both(parts) => parts.2,
            Decoding::Events(parts) => parts.1,
            Decoding::Chunks(parts) => parts.0.checksum(),
        }
    }
}
