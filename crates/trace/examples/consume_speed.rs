//! How fast the consumer is, on made-up traces with the statistics of real ones: `consume_speed [seconds]`.
//!
//! For comparison it also measures the reference decoder, and the consumer when every instruction address is wanted as a
//! number instead of as part of its block. Each figure is the best of many short runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use trace::checksum::Checksum;
use trace::consume::Consumer;
use trace::decode::Decoder;
use trace::event::Event;
use trace::synthetic::{Mix, Rng, Synthetic};

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    for (blocks, bytes) in [(100, 1 << 20), (1000, 1 << 20), (10_000, 4 << 20)] {
        let program = Synthetic::new(1, blocks, Mix::Plain);
        let (trace, insns) = program.trace(&mut Rng(1), bytes);
        let (mut consumer, mut decoder) = (Consumer::new(), Decoder::new());
        for def in &program.defs {
            consumer.block(def).expect("a made-up block is valid");
            decoder.block(def).expect("a made-up block is valid");
        }
        let (mut records, mut accesses) = (0, 0);
        consumer
            .buffer(&trace, |chunk| {
                records += chunk.blocks.len();
                accesses += chunk.addresses.len();
            })
            .expect("a made-up trace is valid");
        let mut checksum = Checksum::default();
        decoder.buffer(&trace, &mut |e: &Event| checksum.event(e)).expect("a made-up trace is valid");
        assert_eq!(consumer.checksum(), checksum, "the fast consumer and the reference decoder must agree");

        let per = |n: usize| n as f64 / records as f64;
        println!(
            "{blocks} blocks: {:.1} instructions, {:.1} slots, {:.1} accesses per block, {:.2} bytes per instruction",
            insns as f64 / records as f64,
            per((trace.len() - 4 * records) / 8),
            per(accesses),
            trace.len() as f64 / insns as f64,
        );
        let report = |name: &str, fastest: Duration| {
            let rate = insns as f64 / fastest.as_secs_f64() / 1e6;
            println!(
                "  {name:34} {rate:7.0} M instructions/s, {:5.2} ns/block",
                fastest.as_secs_f64() * 1e9 / records as f64
            );
        };
        let limit = Duration::from_secs_f64(seconds / 3.0);
        report(
            "blocks and addresses",
            best(limit, || {
                consumer
                    .buffer(&trace, |chunk| {
                        black_box(chunk);
                    })
                    .is_ok()
            }),
        );
        let mut pcs = Vec::new();
        report(
            "and every instruction address",
            best(limit, || {
                consumer
                    .buffer(&trace, |chunk| {
                        pcs.clear();
                        chunk.pcs(&mut pcs);
                        black_box(&pcs);
                    })
                    .is_ok()
            }),
        );
        report(
            "reference decoder",
            best(limit, || {
                decoder
                    .buffer(&trace, &mut |e: &Event| {
                        black_box(e);
                    })
                    .is_ok()
            }),
        );
    }
}

/// The shortest run, among those that fit into the time.
fn best(limit: Duration, mut run: impl FnMut() -> bool) -> Duration {
    let (start, mut fastest) = (Instant::now(), Duration::MAX);
    while start.elapsed() < limit {
        let begin = Instant::now();
        assert!(run());
        fastest = fastest.min(begin.elapsed());
    }
    fastest
}
