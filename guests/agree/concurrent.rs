//! Rust: panics that unwind, threads, channels, locks, processes, network and files of the standard library.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    panic,
    process::{Command, Stdio},
    sync::{Arc, Barrier, Condvar, Mutex, RwLock, atomic::*, mpsc},
    thread,
    time::Duration,
};

fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

fn main() {
    let (tx, rx) = mpsc::channel();
    let handles: Vec<_> = (0..4u64)
        .map(|i| {
            let tx = tx.clone();
            thread::Builder::new()
                .name(format!("worker-{i}"))
                .spawn(move || {
                    tx.send((i, fib(15 + i))).unwrap();
                    i * 2
                })
                .unwrap()
        })
        .collect();
    drop(tx);
    let mut got: Vec<_> = rx.iter().collect();
    got.sort();
    println!("{got:?} {:?}", handles.into_iter().map(|h| h.join().unwrap()).collect::<Vec<_>>());

    let shared = Arc::new((Mutex::new(0u64), Condvar::new(), RwLock::new(vec![0u64; 4]), Barrier::new(4)));
    let total = AtomicU64::new(0);
    thread::scope(|s| {
        for i in 0..4usize {
            let (shared, total) = (&shared, &total);
            s.spawn(move || {
                for round in 0..100 {
                    *shared.0.lock().unwrap() += 1;
                    shared.1.notify_all();
                    shared.2.write().unwrap()[i] += round;
                    total.fetch_add(shared.2.read().unwrap()[i], Ordering::SeqCst);
                }
                shared.3.wait();
            });
        }
    });
    println!("{} {:?} {}", shared.0.lock().unwrap(), shared.2.read().unwrap(), total.load(Ordering::SeqCst));
    let guard = shared.0.lock().unwrap();
    let (_guard, timeout) = shared.1.wait_timeout(guard, Duration::from_millis(20)).unwrap();
    println!("timed out {}", timeout.timed_out());

    panic::set_hook(Box::new(|info| println!("hook: {}", info.location().is_some())));
    let caught = panic::catch_unwind(|| {
        let v: Vec<u32> = Vec::new();
        v[3]
    });
    println!("caught {}", caught.is_err());
    let joined = thread::spawn(|| panic!("in a thread")).join();
    println!("joined {:?}", joined.unwrap_err().downcast_ref::<&str>());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.to_uppercase()
    });
    TcpStream::connect(address).unwrap().write_all(b"over the wire").unwrap();
    println!("{}", server.join().unwrap());

    let mut child = Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through a child").unwrap();
    println!("{}", String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap());
    println!("{:?}", Command::new("/no/such/program").spawn().map_err(|e| e.kind()));
    let status = Command::new("sh").args(["-c", "kill -9 $$"]).status().unwrap();
    println!("{status}");

    let map: HashMap<u32, u32> = (0..1000).map(|i| (i, i * i)).collect();
    let sorted: BTreeMap<_, _> = map.iter().filter(|(k, _)| *k % 100 == 0).collect();
    println!("{sorted:?}");
    std::fs::write("out.txt", format!("{:?}\n", std::env::args().skip(1).collect::<Vec<_>>())).unwrap();
    // The default message names the thread by its number, which differs from run to run.
    panic::set_hook(Box::new(|info| eprintln!("{info}")));
    if std::env::args().count() > 1 {
        panic!("the end");
    }
}
