//! What is sent is what is received.

use super::*;
use crate::wire::{Action, Site};

fn check_request(request: Request) {
    let bytes = request.encode();
    assert_eq!(Request::decode(&bytes), Some(request));
    for cut in 0..bytes.len() {
        // A shorter list may still be one; what matters is that nothing panics.
        let _ = Request::decode(&bytes[..cut]);
    }
}

fn check_answer(answer: Answer) {
    assert_eq!(Answer::decode(&answer.encode()), Some(answer));
}

#[test]
fn requests_and_answers_survive() {
    let moment = Moment { tick: 3, pc: 4 };
    let until = Until { moment: Some(moment), record: Some(7), collect: true, skip: 2, ..Until::default() };
    check_request(Request::Run(until));
    check_request(Request::Run(Until { blind: true, single: true, thread: Some(3), ..Until::default() }));
    check_request(Request::Leave { thread: 7 });
    check_request(Request::Belt);
    check_request(Request::Try {
        alteration: Alteration::Flip,
        files: alloc::vec![b"/a".to_vec()],
        limits: TrialLimits { ticks: 1, memory: 2, output: 3, belt: true },
    });
    check_request(Request::Watches(alloc::vec![(1, 2), (3, 4)]));
    check_request(Request::SetRegisters { thread: 1, state: State { rip: 5, ..State::default() } });
    check_request(Request::Files(alloc::vec![b"/a".to_vec(), Vec::new()]));
    check_request(Request::Alter(Alteration::Return));
    check_request(Request::Alter(Alteration::FlipTwo { pc: 5, execution: 6 }));
    check_request(Request::Predicates { ranges: alloc::vec![(1, 2)], places: alloc::vec![3], jumps: true, keep: 4 });
    check_request(Request::KeepPredicates { keep: 4 });
    check_request(Request::Alter(Alteration::SetMemory(GuestAddr(1), alloc::vec![1, 2])));
    check_request(Request::Trial(TrialLimits { ticks: 1, memory: 2, output: 3, belt: true }));
    check_request(Request::Hold(TrialLimits { ticks: 1, memory: 2, output: 3, belt: false }));
    let probe = Probe { site: Site::Absolute(GuestAddr(7)), instance: 3, action: Action::Return };
    check_request(Request::Alter(Alteration::Arm(probe)));
    let place = Place { moment, record: 9, thread: 2 };
    let collected = Collected {
        breakpoints: 4,
        last_breakpoint: Some(place.clone()),
        last_change: Some((moment, moment)),
        steps: alloc::vec![place.clone()],
    };
    check_answer(Answer::Stopped { why: Why::Changed { since: moment }, place, collected });
    check_answer(Answer::Child(7));
    check_answer(Answer::Left { file: 1, bytes: Some(alloc::vec![2, 3]) });
    check_answer(Answer::Left { file: 1, bytes: None });
    let noted = Predicate { moment, instance: 5, taken: true, to: 6 };
    check_answer(Answer::Predicates { list: alloc::vec![noted], total: 9 });
    check_answer(Answer::Looked(7, alloc::vec![1]));
    check_request(Request::Looks(alloc::vec![Look { pc: 1, execution: 2, addr: 3, len: 4 }]));
    check_answer(Answer::Ended { end: TrialEnd::Signaled { signal: 11, moment, addr: 8 }, ticks: 3 });
    check_answer(Answer::Threads(alloc::vec![ThreadInfo {
        number: 1,
        tid: 2,
        in_call: Some(202),
        left: Some(moment)
    }]));
}
