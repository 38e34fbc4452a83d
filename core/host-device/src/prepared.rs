//! The kernels that a device has prepared, and their launches, checked.

use std::sync::{Arc, PoisonError, RwLock};

use espalier_interface::op::definition;
use espalier_interface::{
    BufferRange, Decoder, Kernel, KernelRequest, Launch, PluginError, Prepared, Result, Services,
};

use crate::call::{Call, MOST_RANGES};
use crate::{Asked, Expected, KernelMaker, Made, Setting, Span};

/// The memory of a device's launches.
pub trait LaunchMemory {
    /// The memory of a range.
    ///
    /// # Errors
    /// `INVALID` for a range that does not exist, or that kernels do not work on.
    fn span(&self, range: BufferRange) -> Result<Span>;

    /// Checks that there is room for `bytes` that a library allocates itself for a while.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where there is not.
    fn check_room(&self, bytes: u64) -> Result<()>;
}

/// The kernels of a device.
pub struct PreparedKernels {
    services: Arc<dyn Services>,
    maker: Box<dyn KernelMaker>,
    /// A slot for each kernel; a released one is empty and used again.
    slots: RwLock<Vec<Option<Arc<Ready>>>>,
}

/// A prepared kernel.
struct Ready {
    op: String,
    made: Made,
    expected: Vec<Expected>,
    /// Indices of the first param and the first output.
    begins: [usize; 2],
    /// Scalars of each launch.
    scalars: usize,
    max_tokens: u64,
    max_sequences: u64,
}

impl PreparedKernels {
    /// No kernels yet of those that `maker` makes.
    pub fn new(maker: Box<dyn KernelMaker>, services: Arc<dyn Services>) -> Self {
        PreparedKernels {
            services,
            maker,
            slots: RwLock::default(),
        }
    }

    /// The backend's name.
    pub fn backend(&self) -> &str {
        self.maker.name()
    }

    /// The op of a kernel, if it is prepared.
    pub fn op(&self, kernel: Kernel) -> Option<String> {
        self.find(kernel).ok().map(|ready| ready.op.clone())
    }

    /// Prepares a kernel.
    ///
    /// # Errors
    /// Those of the maker; `UNSUPPORTED` for more ranges than a launch may have.
    pub fn prepare(
        &self,
        request: &KernelRequest,
        decoders: &[Option<Decoder>],
    ) -> Result<Prepared> {
        let asked = Asked {
            request,
            backend: self.maker.name(),
        };
        let expected = asked.ranges();
        if expected.len() > MOST_RANGES {
            let what = format!("{} ranges, expected at most {MOST_RANGES}", expected.len());
            return Err(asked.unsupported(what));
        }
        let outputs = expected.iter().filter(|one| one.written).count();
        let begins = [request.inputs.len(), expected.len() - outputs];
        let setting = Setting {
            decoders,
            services: &self.services,
        };
        let made = self.maker.prepare(&asked, &setting)?;
        let workspace_bytes = made.workspace_bytes;
        let ready = Ready {
            op: request.op.clone(),
            made,
            expected,
            begins,
            scalars: definition(&request.op, request.version).map_or(0, |op| op.scalars.len()),
            max_tokens: request.max_tokens,
            max_sequences: request.max_sequences,
        };
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.iter().rposition(Option::is_none) {
            Some(empty) => empty,
            None => {
                slots.push(None);
                slots.len() - 1
            }
        };
        slots[slot] = Some(Arc::new(ready));
        Ok(Prepared {
            kernel: Kernel(slot as u64),
            workspace_bytes,
        })
    }

    /// Runs a launch over ranges of `memory`. The device has checked its stream.
    ///
    /// # Errors
    /// `INVALID` for ranges that do not fit the request; errors of the kernel. Both name the op.
    pub fn launch(&self, launch: &Launch<'_>, memory: &dyn LaunchMemory) -> Result<()> {
        let kernel = self.find(launch.kernel)?;
        let done = self.run(&kernel, launch, memory);
        done.map_err(|error| PluginError {
            message: format!("launch of `{}`: {}", kernel.op, error.message),
            ..error
        })
    }

    /// Releases a kernel.
    ///
    /// # Errors
    /// `INVALID` for one that was not prepared.
    pub fn release(&self, kernel: Kernel) -> Result<()> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(kernel.0 as usize);
        match slot.and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(PluginError::invalid(format!(
                "kernel {} was not prepared, or is released",
                kernel.0
            ))),
        }
    }

    fn find(&self, kernel: Kernel) -> Result<Arc<Ready>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let found = slots.get(kernel.0 as usize).cloned().flatten();
        found.ok_or_else(|| PluginError::invalid(format!("kernel {} was not prepared", kernel.0)))
    }

    fn run(&self, kernel: &Ready, launch: &Launch<'_>, memory: &dyn LaunchMemory) -> Result<()> {
        kernel.check(launch)?;
        let invalid = |what: String| Err(PluginError::invalid(what));
        let mut call = Call::new(
            &*self.services,
            [launch.tokens, launch.sequences],
            launch.scalars,
            kernel.begins,
        );
        for (index, (range, expected)) in launch.ranges.iter().zip(&kernel.expected).enumerate() {
            let bytes = expected.bytes(launch.tokens, launch.sequences);
            let Some(bytes) = bytes.filter(|&bytes| bytes <= range.bytes) else {
                return invalid(format!(
                    "{} is {} {:?}: {} bytes, but its range has {}",
                    expected.name,
                    expected.dtype,
                    expected.shape,
                    bytes.map_or("countless".to_owned(), |n| n.to_string()),
                    range.bytes
                ));
            };
            if !range.offset.is_multiple_of(64) {
                let name = &expected.name;
                return invalid(format!(
                    "{name} begins at byte {}, not at 64 n",
                    range.offset
                ));
            }
            call.set(index, memory.span(*range)?, expected, bytes);
        }
        let wanted = kernel.made.workspace_bytes;
        if wanted > 0 {
            if launch.workspace.bytes < wanted || !launch.workspace.offset.is_multiple_of(64) {
                return invalid(format!(
                    "a workspace of {} bytes at byte {}, expected {wanted} at 64 n",
                    launch.workspace.bytes, launch.workspace.offset
                ));
            }
            let range = BufferRange {
                bytes: wanted,
                ..launch.workspace
            };
            call.set_workspace(memory.span(range)?);
        }
        call.check_overlap(kernel.made.overlap)?;
        if kernel.made.temporary_bytes > 0 {
            memory.check_room(kernel.made.temporary_bytes)?;
        }
        (kernel.made.run)(&call)
    }
}

impl Ready {
    /// Checks the numbers of a launch.
    fn check(&self, launch: &Launch<'_>) -> Result<()> {
        let invalid = |what: String| Err(PluginError::invalid(what));
        if launch.ranges.len() != self.expected.len() {
            let (found, expected) = (launch.ranges.len(), self.expected.len());
            return invalid(format!("{found} ranges, expected {expected}"));
        }
        if launch.scalars.len() != self.scalars {
            let (found, expected) = (launch.scalars.len(), self.scalars);
            return invalid(format!("{found} scalars, expected {expected}"));
        }
        for (what, found, most) in [
            ("tokens", launch.tokens, self.max_tokens),
            ("sequences", launch.sequences, self.max_sequences),
        ] {
            if found > most {
                return invalid(format!("{found} {what}, prepared for at most {most}"));
            }
        }
        Ok(())
    }
}
