//! Kernels: prepared by the cpu, launched as tasks.

use espalier_interface::{
    Decoder, Kernel, KernelRequest, Kernels, Launch, PluginError, Prepared, Result,
};

use super::LateDevice;
use crate::memory::BufferHome;
use crate::settings::HostOperands;
use crate::task::{KnownKernel, Pause, Task};

impl Kernels for LateDevice {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        let op = request.id();
        if self.hides.has(&op) {
            let message = format!("backend `late` has no op `{op}`");
            return Err(PluginError::unsupported(message));
        }
        let mut state = self.lock();
        let mut prepared = self.cpu.prepare(request, decoders)?;
        if request.op == "cast" && request.max_tokens == 0 {
            prepared.workspace_bytes = prepared.workspace_bytes.max(self.cast_workspace);
        }
        let known = KnownKernel {
            workspace_bytes: prepared.workspace_bytes,
            what: format!("launch of `{}`", request.op).into(),
            outputs: request.outputs.len(),
            may_fail: self.fail_op.as_ref().is_none_or(|op| *op == request.op),
        };
        state.kernels.insert(prepared.kernel, known);
        Ok(prepared)
    }

    /// Checks that the kernel and all bytes exist. The rest is checked when the task runs, and told
    /// by the next wait of the host.
    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let mut state = self.told()?;
        let stream = state.queues.index(launch.stream)?;
        let Some(known) = state.kernels.get(&launch.kernel) else {
            let message = format!("kernel {} was not prepared", launch.kernel.0);
            return Err(PluginError::invalid(message));
        };
        if launch.workspace.bytes < known.workspace_bytes {
            return Err(PluginError::invalid(format!(
                "{}: expected {} bytes of workspace, found {}",
                known.what, known.workspace_bytes, launch.workspace.bytes
            )));
        }
        let may_fail = known.may_fail;
        let task = Task::launch(launch, known);
        for range in task.ranges() {
            let place = state.buffers.place(range)?;
            let of_host = !matches!(place, BufferHome::Device(_));
            if of_host && self.host_operands == HostOperands::Refuse {
                return Err(PluginError::invalid(format!(
                    "kernel {} works on buffer {}, which is the host's memory: expected memory of \
                     the device",
                    launch.kernel.0, range.buffer.0
                )));
            }
        }
        state.counts.launches += 1;
        if state.counts.launches == self.slow_launch.0 {
            let pause = Task::Pause(Pause::new(self.slow_launch.1));
            state.put(stream, pause, &*self.cpu);
        }
        state.counts.may_fail += u64::from(may_fail);
        let fails = may_fail && state.counts.may_fail == self.fail_launch;
        let task = if fails { task.failing() } else { task };
        state.put(stream, task, &*self.cpu);
        Ok(())
    }

    /// Queued launches of it still run, so the cpu keeps the kernel.
    fn release(&self, kernel: Kernel) -> Result<()> {
        let released = self.lock().kernels.remove(&kernel).map(|_| ());
        let missing = || PluginError::invalid(format!("kernel {} was not prepared", kernel.0));
        released.ok_or_else(missing)
    }
}
