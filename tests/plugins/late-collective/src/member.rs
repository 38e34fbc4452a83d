//! A member of a group: a call -> a task on a stream, which makes the call when it runs.

use std::sync::Arc;

use espalier_interface::{
    CollectiveCall, CollectiveOp, DType, ErrorCode, Group, PluginError, Result,
};
use late_native::{NativeSpan, NativeStream, NativeTask};

/// Dtypes that it sums.
const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

/// A member.
pub struct Member {
    group: Arc<dyn Group>,
    members: usize,
}

/// A call that waits on a stream.
struct Waiting {
    group: Arc<dyn Group>,
    call: CollectiveCall,
}

impl Member {
    /// A member of a group of the host, of `members` members.
    pub fn new(group: Box<dyn Group>, members: usize) -> Self {
        Member {
            group: Arc::from(group),
            members,
        }
    }

    /// Bytes sent and received.
    fn sizes(&self, call: &CollectiveCall) -> [u64; 2] {
        let (part, members) = (call.count * call.dtype.bytes(), self.members as u64);
        match call.op {
            CollectiveOp::ALL_GATHER => [part, members * part],
            CollectiveOp::REDUCE_SCATTER => [members * part, part],
            _ => [part, part],
        }
    }
}

impl Group for Member {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        call.check_operands(self.members, &DTYPES)?;
        if call.stream.is_null() {
            let message = format!("expected a call on a stream, found {call} on none");
            return Err(PluginError::unsupported(message));
        }
        let [sent, received] = self.sizes(call);
        let spans = [
            NativeSpan {
                address: call.send.addr(),
                bytes: sent,
                // Its content is undefined afterwards.
                writes: u32::from(call.op == CollectiveOp::REDUCE_SCATTER),
            },
            NativeSpan {
                address: call.recv.addr(),
                bytes: received,
                writes: 1,
            },
        ];
        let waiting = Waiting {
            group: Arc::clone(&self.group),
            call: CollectiveCall {
                stream: std::ptr::null(),
                ..*call
            },
        };
        let task = NativeTask {
            run,
            argument: Box::into_raw(Box::new(waiting)).expose_provenance(),
            spans: spans.as_ptr(),
            count: spans.len(),
        };
        let stream = call.stream.cast::<NativeStream>();
        // SAFETY: the host passes a handle of a device of `late`, which `join` asked for; the spans
        // live on this stack.
        let refused = unsafe { ((*stream).enqueue)(stream, &raw const task) };
        match refused {
            0 => Ok(()),
            _ => Err(PluginError::new(
                ErrorCode::DEVICE,
                format!("{call}: its memory is not the device's"),
            )),
        }
    }

    fn abort(&self) {
        self.group.abort();
    }
}

/// Makes a call that has waited. It waits for the other members.
extern "C" fn run(argument: usize) -> u32 {
    let waiting = std::ptr::with_exposed_provenance_mut::<Waiting>(argument);
    // SAFETY: `call` made it of a box, and a task runs once.
    let waiting = unsafe { Box::from_raw(waiting) };
    match waiting.group.call(&waiting.call) {
        Ok(()) => 0,
        Err(error) => error.code.0,
    }
}
