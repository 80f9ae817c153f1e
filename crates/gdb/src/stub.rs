//! `gdbstub` behind an in-memory connection: a packet goes in, the body of the answer comes out.
//!
//! `gdbstub` knows most of the protocol, but a packet that it cannot parse consumes its state machine. Here that costs
//! the client one error answer: a new machine takes over, and the session tells it the threads that the client had
//! chosen. Acknowledgements are switched off inside; [`crate::wire`] does them for the real connection.

use std::convert::Infallible;

use gdbstub::{
    conn::Connection,
    stub::{DisconnectReason, GdbStub, GdbStubError, MultiThreadStopReason, state_machine::GdbStubStateMachine},
};

use crate::{
    debuggee::Error,
    target::Adapter,
    wire::{PACKET_SIZE, checksum},
};

type Machine<'d> = GdbStubStateMachine<'static, Adapter<'d>, Answers>;
type Failure = GdbStubError<String, Infallible>;

/// What `gdbstub` wrote.
#[derive(Default)]
struct Answers(Vec<u8>);

impl Connection for Answers {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// What a packet led to.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The body of the answer.
    Answer(Vec<u8>),
    /// The debuggee is to be moved as [`Adapter::wanted`] says; the answer is why it stopped.
    Resumed,
    /// As `Answer`, and then the session ends.
    Ended(Vec<u8>, DisconnectReason),
    /// The packet made no sense. The machine is new and knows nothing of earlier packets.
    Nonsense,
}

pub struct Stub<'d> {
    /// Only absent while a packet is worked on.
    machine: Option<Machine<'d>>,
    /// The client's own `qSupported`, which a new machine has to be told.
    features: Vec<u8>,
}

impl<'d> Stub<'d> {
    pub fn new(target: &mut Adapter<'d>) -> Result<Stub<'d>, Error> {
        let mut stub = Stub { machine: None, features: Vec::new() };
        stub.start(target)?;
        Ok(stub)
    }

    fn start(&mut self, target: &mut Adapter<'d>) -> Result<(), Error> {
        let broken = |reason: String| Error::Lost(format!("the protocol cannot be started: {reason}"));
        let stub = GdbStub::builder(Answers::default())
            .packet_buffer_size(PACKET_SIZE)
            .build()
            .map_err(|e| broken(e.to_string()))?;
        self.machine = Some(stub.run_state_machine(target).map_err(|e| broken(e.to_string()))?);
        for body in [b"QStartNoAckMode".to_vec(), self.features.clone()].iter().filter(|body| !body.is_empty()) {
            self.pump(target, body).map_err(|e| broken(e.to_string()))?;
        }
        self.take_answers();
        Ok(())
    }

    /// Lets `gdbstub` handle a packet.
    pub fn handle(&mut self, target: &mut Adapter<'d>, body: &[u8]) -> Result<Outcome, Error> {
        if body.starts_with(b"qSupported:") {
            self.features = body.to_vec();
        }
        if let Err(failure) = self.pump(target, body) {
            return self.failed(target, failure);
        }
        let answer = self.take_answers();
        match &self.machine {
            Some(GdbStubStateMachine::Running(_)) => Ok(Outcome::Resumed),
            Some(GdbStubStateMachine::Disconnected(state)) => Ok(Outcome::Ended(answer, state.get_reason())),
            _ => Ok(Outcome::Answer(answer)),
        }
    }

    /// Says why the debuggee stopped; the answer is for the client.
    pub fn stopped(&mut self, target: &mut Adapter<'d>, reason: MultiThreadStopReason<u64>) -> Result<Outcome, Error> {
        let Some(GdbStubStateMachine::Running(running)) = self.machine.take() else {
            self.start(target)?;
            return Ok(Outcome::Nonsense);
        };
        match running.report_stop(target, reason) {
            Ok(machine) => self.machine = Some(machine),
            Err(failure) => return self.failed(target, failure),
        }
        Ok(Outcome::Answer(self.take_answers()))
    }

    fn failed(&mut self, target: &mut Adapter<'d>, failure: Failure) -> Result<Outcome, Error> {
        if let Some(reason) = failure.into_target_error() {
            return Err(Error::Lost(reason));
        }
        self.start(target)?;
        Ok(Outcome::Nonsense)
    }

    fn pump(&mut self, target: &mut Adapter<'d>, body: &[u8]) -> Result<(), Failure> {
        let end = format!("#{:02x}", checksum(body));
        for byte in [b'$'].iter().chain(body).chain(end.as_bytes()) {
            self.machine = match self.machine.take() {
                Some(GdbStubStateMachine::Idle(idle)) => Some(idle.incoming_data(target, *byte)?),
                // After the guest's end the client may still ask; the other states do not last beyond a packet.
                Some(GdbStubStateMachine::Disconnected(ended)) => match ended.return_to_idle() {
                    GdbStubStateMachine::Idle(idle) => Some(idle.incoming_data(target, *byte)?),
                    other => Some(other),
                },
                other => other,
            };
        }
        Ok(())
    }

    /// The body of what was written last.
    fn take_answers(&mut self) -> Vec<u8> {
        let written = match &mut self.machine {
            Some(GdbStubStateMachine::Idle(state)) => std::mem::take(&mut state.borrow_conn().0),
            Some(GdbStubStateMachine::Running(state)) => std::mem::take(&mut state.borrow_conn().0),
            Some(GdbStubStateMachine::CtrlCInterrupt(state)) => std::mem::take(&mut state.borrow_conn().0),
            Some(GdbStubStateMachine::Disconnected(state)) => std::mem::take(&mut state.borrow_conn().0),
            None => Vec::new(),
        };
        let begin = written.iter().position(|b| *b == b'$').map_or(written.len(), |at| at + 1);
        let end = written.len().saturating_sub(3).max(begin);
        written[begin..end].to_vec()
    }
}
