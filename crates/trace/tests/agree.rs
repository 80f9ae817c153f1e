//! The fast consumer and the reference decoder give the same stream, whatever the trace: random programs with every
//! kind of record, cut at any place, damaged, and pure noise.

use trace::checksum::Checksum;
use trace::consume::Consumer;
use trace::decode::{Decoder, TraceError};
use trace::event::Event;
use trace::synthetic::{Mix, Rng, Synthetic};

struct Both {
    decoder: Decoder,
    consumer: Consumer,
    checksum: Checksum,
}

impl Both {
    fn new(program: &Synthetic) -> Both {
        let mut both = Both { decoder: Decoder::new(), consumer: Consumer::new(), checksum: Checksum::default() };
        for def in &program.defs {
            both.decoder.block(def).unwrap();
            both.consumer.block(def).unwrap();
        }
        both
    }

    /// Both give the same events, the same checksum and the same error for this buffer.
    fn check_agree(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let mut expected = Vec::new();
        let reference = self.decoder.buffer(bytes, &mut |e: &Event| expected.push(*e));
        let (mut events, mut pcs) = (Vec::new(), Vec::new());
        let fast = self.consumer.buffer(bytes, |chunk| {
            chunk.for_each(|e| events.push(*e));
            chunk.pcs(&mut pcs);
        });
        assert_eq!(fast, reference);
        if let Some(n) = (0..events.len().max(expected.len())).find(|&n| events.get(n) != expected.get(n)) {
            panic!("event {n}: fast {:?}, reference {:?}", events.get(n), expected.get(n));
        }
        expected.iter().for_each(|e| self.checksum.event(e));
        assert_eq!(self.consumer.checksum(), self.checksum);
        let completed = expected.iter().filter_map(|e| match e {
            Event::Insn(i) => Some(i.pc),
            Event::Special(trace::format::Special::Step { pc }) => Some(*pc),
            _ => None,
        });
        assert!(completed.eq(pcs));
        reference
    }
}

#[test]
fn on_random_programs() {
    for seed in 0..40 {
        let mix = if seed % 4 == 0 { Mix::Plain } else { Mix::Everything };
        let program = Synthetic::new(seed, 1 + (seed as usize * 7) % 90, mix);
        let mut both = Both::new(&program);
        let mut rng = Rng(seed);
        for len in [0, 100, 4000, 4096, 5000, 30_000] {
            let (bytes, _) = program.trace(&mut rng, len);
            both.check_agree(&bytes).unwrap();
        }
    }
}

#[test]
fn when_a_buffer_ends_inside_a_record() {
    let program = Synthetic::new(1, 20, Mix::Everything);
    let (bytes, _) = program.trace(&mut Rng(1), 9000);
    let mut both = Both::new(&program);
    for cut in (0..bytes.len()).rev().step_by(7) {
        let _ = both.check_agree(&bytes[..cut]);
    }
}

#[test]
fn when_the_rest_of_a_buffer_is_unused() {
    let program = Synthetic::new(2, 20, Mix::Everything);
    let mut both = Both::new(&program);
    for len in [0, 50, 10_000] {
        let (mut bytes, _) = program.trace(&mut Rng(len as u64), len);
        bytes.extend(trace::format::PAD.to_le_bytes());
        bytes.extend([0xab; 5000]);
        both.check_agree(&bytes).unwrap();
    }
}

#[test]
fn on_damaged_traces() {
    let program = Synthetic::new(3, 30, Mix::Everything);
    let mut rng = Rng(3);
    let mut both = Both::new(&program);
    for _ in 0..300 {
        let (mut bytes, _) = program.trace(&mut rng, 12_000);
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = match rng.below(3) {
                0 => 0xff,
                1 => 0,
                _ => rng.word() as u8,
            };
        }
        let _ = both.check_agree(&bytes);
    }
}

#[test]
fn on_noise() {
    let program = Synthetic::new(4, 300, Mix::Everything);
    let mut rng = Rng(4);
    let mut both = Both::new(&program);
    for round in 0..3000 {
        let fill = rng.word() as u8;
        let mut bytes: Vec<u8> = (0..rng.below(9000))
            .map(|_| match round % 3 {
                0 => rng.word() as u8,
                1 => 0xff * rng.below(2) as u8,
                _ => fill,
            })
            .collect();
        // Otherwise the first word would nearly always be the end of it.
        if let Some(first) = bytes.get_mut(..4) {
            let block = &program.blocks[rng.below(300) as usize];
            first.copy_from_slice(&block.plan.tag(block.id).to_le_bytes());
        }
        let _ = both.check_agree(&bytes);
    }
}
