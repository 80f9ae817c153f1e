//! The protocol packet by packet, with clients that behave and clients that do not.

mod support;

use gdb::{Debuggee, End, ServeError};
use support::{
    Machine,
    client::{check_exchanges, with_client},
};

#[test]
fn features_are_negotiated() {
    let end = with_client(&mut Machine::new(), |client| {
        let answer = client.ask("qSupported:multiprocess+;swbreak+;hwbreak+;xmlRegisters=i386");
        for feature in [
            "PacketSize=010000",
            "multiprocess+",
            "QStartNoAckMode+",
            "ReverseStep+",
            "ReverseContinue+",
            "vContSupported+",
            "swbreak+",
            "hwbreak+",
            "QPassSignals+",
            "qXfer:features:read+",
            "qXfer:auxv:read+",
            "qXfer:threads:read+",
            "qXfer:siginfo:read+",
        ] {
            assert!(answer.split(';').any(|f| f == feature), "{feature} in {answer}");
        }
        assert!(!answer.contains("fork-events"), "{answer}");
        assert_eq!(client.ask("vCont?"), "vCont;c;C;s;S;r");
        assert_eq!(client.ask("?"), "T05thread:p1092.1092;");
    });
    assert_eq!(end.unwrap(), End::Closed);
}

#[test]
fn process_numbers_are_not_forced_on_clients_that_do_not_know_them() {
    let end = with_client(&mut Machine::new(), |client| {
        assert!(!client.ask("qSupported:xmlRegisters=i386").contains("multiprocess"));
        assert_eq!(client.ask("?"), "T05thread:1092;");
        assert_eq!(client.ask("qfThreadInfo"), "m1092,1093");
        assert_eq!(client.ask("qC"), "QC1092");
        assert_eq!(client.ask("c"), "T05thread:1092;replaylog:end;");
        assert_eq!(client.ask("k"), "OK");
    });
    assert_eq!(end.unwrap(), End::Killed);
}

#[test]
fn acknowledgements_stop_on_request() {
    let end = with_client(&mut Machine::new(), |client| {
        client.send("QStartNoAckMode");
        assert_eq!(client.byte(), b'+');
        assert_eq!(client.receive(), "OK");
        client.send("qC");
        assert_eq!(client.byte(), b'$', "no acknowledgement");
        assert_eq!(client.receive_rest(), "QC1092");
    });
    assert_eq!(end.unwrap(), End::Closed);
}

#[test]
fn registers_and_memory_can_be_read_and_written_one_by_one() {
    let mut machine = Machine::new();
    let exchanges = [
        ("Hg1092", "OK"),
        ("p10", "0010400000000000"),
        ("p28", "000102030405060708090a0b0c0d0e0f"),
        ("p3c", "101112131415161718191a1b1c1d1e1f"),
        ("p4c", ""),
        ("m401000,3", "48ffc0"),
        ("m4012fe,8", "9090"),
        ("m0,8", "E0e"),
        ("mfffffffffffffffe,8", "E16"),
        ("m401000,ffffffffffff", "E16"),
        ("P0=2a00000000000000", "OK"),
        ("p0", "2a00000000000000"),
        ("P0=2a", "E16"),
        ("M404000,2:0102", "OK"),
        ("m404000,2", "0102"),
        ("X404000,0:", "OK"),
        ("M0,1:00", "E0e"),
        ("Hg7777", "OK"),
        ("g", "E16"),
        ("D", "OK"),
    ];
    assert_eq!(check_exchanges(&mut machine, &exchanges), End::Detached);
    assert_eq!((machine.copies_made, machine.copies_ended), (1, 1), "and the copy is gone");
}

#[test]
fn resumptions_say_why_they_stopped() {
    let exchanges = [
        ("?", "T05thread:1092;"),
        ("vCont;s:1092", "T05thread:1092;"),
        ("Z0,401013,1", "OK"),
        ("vCont;c", "T05thread:1092;swbreak:;"),
        ("z0,401013,1", "OK"),
        ("Z1,401000,1", "OK"),
        ("vCont;c", "T05thread:1092;hwbreak:;"),
        ("z1,401000,1", "OK"),
        ("z1,401000,1", "E16"),
        ("Z2,404004,4", "OK"),
        ("bc", "T05thread:1092;watch:404004;"),
        ("z2,404004,4", "OK"),
        ("Z3,404008,1", "OK"),
        ("vCont;c:-1", "T05thread:1092;rwatch:404008;"),
        ("z3,404008,1", "OK"),
        ("Z4,404008,8", "OK"),
        ("bc", "T05thread:1092;awatch:404008;"),
        ("z4,404008,8", "OK"),
        ("vCont;r401000,401013:1092;c", "T05thread:1092;"),
        ("p10", "1310400000000000"),
        ("bc", "T05thread:1092;replaylog:begin;"),
        ("Hc-1", "OK"),
        ("s", "T05thread:1092;"),
        ("bs", "T05thread:1092;"),
        ("Hc1093", "OK"),
        ("s", "T05thread:1093;"),
        ("bs", "T05thread:1093;"),
        ("bs", "T05thread:1092;replaylog:begin;"),
    ];
    assert_eq!(check_exchanges(&mut Machine::new(), &exchanges), End::Closed);
}

#[test]
fn lists_are_given_in_pieces() {
    let threads = "<?xml version=\"1.0\"?>\n<threads>\n<thread id=\"1092\" name=\"main\"/>\n\
                   <thread id=\"1093\" name=\"worker &lt;2&gt;\"/>\n</threads>\n";
    let all = format!("l{threads}");
    let (first, rest) = (format!("m{}", &threads[..16]), format!("l{}", &threads[16..]));
    let exchanges = [
        ("qXfer:threads:read::0,1000", all.as_str()),
        ("qXfer:threads:read::0,10", first.as_str()),
        ("qXfer:threads:read::10,1000", rest.as_str()),
        ("qXfer:threads:read::1000,10", "l"),
        ("qXfer:threads:read::zz", "E16"),
        ("qXfer:threads:write::0:", "E16"),
        ("qXfer:auxv:read::0,4", "m\0\u{1}\u{2}\u{3}"),
        ("qXfer:auxv:read::40,4", "l"),
        ("qXfer:siginfo:write::0:abc", "3"),
    ];
    check_exchanges(&mut Machine::new(), &exchanges);
}

#[test]
fn recorded_files_can_be_read_and_no_others() {
    let path = |path: &str| path.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let (open, missing) = (path("/recorded/text"), path("/etc/passwd"));
    let exchanges = [
        ("vFile:setfs:0", "F0"),
        (&format!("vFile:open:{missing},0,0"), "F-1,02"),
        (&format!("vFile:open:{open},1,1b6"), "F-1,1e"),
        (&format!("vFile:open:{open},0,0"), "F01"),
        ("vFile:pread:1,100,0", "F0f;as it was}] then"),
        ("vFile:pread:1,2,3", "F02;it"),
        ("vFile:pread:1,2,ffffffffffffffff", "F00;"),
        ("vFile:pread:2,2,0", "F-1,09"),
        ("vFile:close:1", "F0"),
        ("vFile:close:1", "F-1,09"),
        ("vFile:pwrite:1,0,x", ""),
    ];
    check_exchanges(&mut Machine::new(), &exchanges);
}

#[test]
fn nonsense_is_answered_and_the_session_goes_on() {
    let exchanges = [
        ("Hg1093", "OK"),
        ("", ""),
        ("vMustReplyEmpty", ""),
        ("vCont;", "E16"),
        ("vCont;q", "E16"),
        ("vCont;t", "E16"),
        ("vFile:open:zz", "E16"),
        ("qXfer:features:read:target.xml:", "E16"),
        ("qXfer:features:read:other.xml:0,10", "E16"),
        ("Z0", "E16"),
        ("Z9,0,0", ""),
        ("Hgxyzzy,", "E16"),
        ("Hg-1", "E16"),
        ("T-1", "E16"),
        ("p", "E16"),
        ("pffffffffffffffffffff", "E16"),
        ("G00", "E16"),
        ("Mzz,1:00", "E16"),
        ("m", "E16"),
        ("qRcmd,7", "E16"),
        ("QPassSignals:zz", "E16"),
        ("vKill", "E16"),
        ("vRun;2f62696e2f7368", "E79"),
        ("vAttach;1", "E79"),
        ("qSupported", "E16"),
        // The chosen thread survived all of that.
        ("p10", "0012400000000000"),
    ];
    check_exchanges(&mut Machine::new(), &exchanges);
}

#[test]
fn garbage_never_harms() {
    // Bytes of a linear congruential generator, as they are and as bodies of right packets.
    let mut seed = 1u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    const STARTS: [&str; 16] = [
        "m",
        "M",
        "X",
        "p",
        "P",
        "G",
        "H",
        "Z",
        "z",
        "vCont;",
        "vFile:open:",
        "vFile:pread:",
        "qXfer:",
        "qRcmd,",
        "T",
        "bs",
    ];
    for round in 0..60 {
        let mut bytes: Vec<u8> = (0..200).map(|_| next()).collect();
        if round % 2 == 0 {
            bytes.clear();
            for _ in 0..20 {
                let length = next() % 12;
                let mut body = STARTS[usize::from(next() % 16)].as_bytes().to_vec();
                body.extend((0..length).map(|_| b"0123456789abcdef,:;=-p."[usize::from(next()) % 23]));
                let sum = body.iter().fold(0u8, |s, b| s.wrapping_add(*b));
                bytes.extend([b"$", &body[..], format!("#{sum:02x}").as_bytes()].concat());
            }
        }
        let end = with_client(&mut Machine::new(), |client| {
            client.raw(&bytes);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            client.drain();
        });
        assert!(end.is_ok(), "{end:?} after {}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_client_that_disappears_ends_a_run_that_would_not_end() {
    let mut machine = Machine::new();
    machine.endless = true;
    let end = with_client(&mut machine, |client| client.send("vCont;c"));
    assert_eq!(end.unwrap(), End::Closed);
}

#[test]
fn a_run_can_be_interrupted_and_goes_on() {
    let mut machine = Machine::new();
    machine.endless = true;
    let end = with_client(&mut machine, |client| {
        for _ in 0..3 {
            client.send("vCont;c");
            client.raw(b"\x03");
            let answer = client.receive();
            assert!(answer.starts_with("T02thread:109"), "{answer}");
        }
        // Ctrl-C while nothing runs has no effect.
        client.raw(b"\x03");
        assert!(client.ask("vCont;s:1092").starts_with("T05"));
    });
    assert_eq!(end.unwrap(), End::Closed);
}

#[test]
fn monitor_output_comes_at_once_and_can_be_interrupted() {
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let end = with_client(&mut Machine::new(), |client| {
        client.send(&format!("qRcmd,{}", hex("work")));
        assert_eq!(client.receive(), format!("O{}", hex("working\n")));
        client.raw(b"\x03");
        assert_eq!(client.receive(), format!("O{}", hex("gave up\n")));
        assert_eq!(client.receive(), "OK");
        client.send(&format!("qRcmd,{}", hex("bad")));
        assert_eq!(client.receive(), format!("O{}", hex("unknown command `bad`\n")));
        assert_eq!(client.receive(), "E01");
    });
    assert_eq!(end.unwrap(), End::Closed);
}

#[test]
fn a_lost_debuggee_ends_the_session_with_the_reason() {
    let end = with_client(&mut Machine::new(), |client| {
        client.send("qRcmd,6c6f7365");
        let text = "the engine has died\n".bytes().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(client.receive(), format!("O{text}"));
        assert_eq!(client.receive(), "X09");
    });
    assert!(matches!(end, Err(ServeError::Debuggee(reason)) if reason == "the engine has died"));
}

#[test]
fn a_debuggee_can_be_served_again() {
    let mut machine = Machine::new();
    check_exchanges(&mut machine, &[("Z0,401013,1", "OK"), ("vCont;c", "T05thread:1092;swbreak:;"), ("D", "OK")]);
    assert_eq!(machine.points(), 0);
    check_exchanges(&mut machine, &[("Hg1092", "OK"), ("p10", "1310400000000000")]);
    assert_eq!(machine.stopped_thread(), support::MAIN);
}
