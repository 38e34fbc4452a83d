//! The routes of a call: none, one collective, or (in `both`) two.

use espalier_interface::{CollectiveCall, CollectiveOp, DType, Group, PluginError};

use super::Span;

type Result<T> = std::result::Result<T, PluginError>;

/// How a rank reaches the others of a group.
pub(super) trait Route: Send + Sync {
    fn all_gather(&self, send: Span, recv: Span) -> Result<()>;
    fn reduce_scatter(&self, dtype: DType, send: Span, recv: Span) -> Result<()>;
    fn all_reduce(&self, dtype: DType, data: Span) -> Result<()>;
    fn abort(&self);
}

/// The route of a rank that is alone.
pub(super) struct Alone;

impl Route for Alone {
    fn all_gather(&self, send: Span, recv: Span) -> Result<()> {
        copy(send, recv);
        Ok(())
    }

    fn reduce_scatter(&self, _: DType, send: Span, recv: Span) -> Result<()> {
        copy(send, recv);
        Ok(())
    }

    fn all_reduce(&self, _: DType, _: Span) -> Result<()> {
        Ok(())
    }

    fn abort(&self) {}
}

/// A group of a collective.
pub(super) struct Direct(pub Box<dyn Group>);

impl Direct {
    fn call(
        &self,
        op: CollectiveOp,
        dtype: DType,
        send: Span,
        recv: Span,
        part: u64,
    ) -> Result<()> {
        self.0.call(&CollectiveCall {
            op,
            dtype,
            count: part / dtype.bytes().max(1),
            root: 0,
            send: send.address.as_ptr(),
            recv: recv.address.as_ptr(),
            stream: std::ptr::null(),
        })
    }

    /// Replaces `data` by the first member's.
    pub fn broadcast(&self, data: Span) -> Result<()> {
        self.call(CollectiveOp::BROADCAST, DType::U8, data, data, data.bytes)
    }
}

impl Route for Direct {
    fn all_gather(&self, send: Span, recv: Span) -> Result<()> {
        self.call(CollectiveOp::ALL_GATHER, DType::U8, send, recv, send.bytes)
    }

    fn reduce_scatter(&self, dtype: DType, send: Span, recv: Span) -> Result<()> {
        self.call(CollectiveOp::REDUCE_SCATTER, dtype, send, recv, recv.bytes)
    }

    fn all_reduce(&self, dtype: DType, data: Span) -> Result<()> {
        self.call(CollectiveOp::ALL_REDUCE, dtype, data, data, data.bytes)
    }

    fn abort(&self) {
        self.0.abort();
    }
}

/// Copies bytes that may be the same ones.
#[allow(unsafe_code)]
pub(super) fn copy(from: Span, to: Span) {
    assert_eq!(from.bytes, to.bytes, "bytes that are copied");
    let bytes = from.bytes as usize;
    // SAFETY: whoever makes a span vouches for its bytes; `copy` allows an overlap.
    unsafe { std::ptr::copy(from.address.as_ptr(), to.address.as_ptr(), bytes) };
}
