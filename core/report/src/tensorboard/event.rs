//! The messages of TensorBoard's event files, as far as scalars need them.
//!
//! # Source
//! `tensorboard/compat/proto/event.proto` and `summary.proto`.

use prost::Message;

/// The content of a file's first event.
pub const FILE_VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`: events of earlier files from this event's step on are void.
pub const START: i32 = 1;

/// An event after `step` steps.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// The step.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// The content.
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub what: Option<What>,
}

/// The content of an event.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    /// The format, in a file's first event.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// Values.
    #[prost(message, tag = "5")]
    Summary(Summary),
    /// The run started or resumed.
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// Values of one step.
#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// A scalar.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    /// Its name; the part before a slash is its group.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Its value.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
}

/// A start or resume of the run.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    /// [`START`].
    #[prost(int32, tag = "1")]
    pub status: i32,
}
