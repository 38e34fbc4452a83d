//! An open device whose memory the host cannot touch: calls of the host -> checks, and work on the
//! driver's streams.
//!
//! `launch`, `copy` and `upload` may return before they are done. Copies that touch memory which
//! the driver copies slowly, or which no device is part of, wait for the stream's work instead.
#![allow(unsafe_code)] // Copies between checked ranges.

mod buffers;
mod queue;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use espalier_host_device::{KernelMaker, PreparedKernels, check_lengths};
use espalier_interface::{
    Buffer, BufferRange, Decoder, Event, HostMemory, Kernel, KernelRequest, Kernels, Launch,
    Memory, MemoryKind, PluginError, Prepared, Result, Services, Stream, Streams,
};

use crate::driver::{Driver, Route};
use buffers::{Buffers, Home, Place};
use queue::Queue;

/// A device with a driver.
pub struct DriverDevice<D: Driver> {
    driver: Arc<D>,
    buffers: Buffers<D>,
    /// The compute stream and the others.
    queues: RwLock<Vec<Arc<Queue<D>>>>,
    events: RwLock<Events<D>>,
    kernels: PreparedKernels,
}

/// The events that are not freed.
struct Events<D: Driver> {
    points: HashMap<Event, Arc<Point<D>>>,
    last: u64,
}

/// An event and the stream that it is a point of.
struct Point<D: Driver> {
    event: D::Event,
    queue: Arc<Queue<D>>,
}

impl<D: Driver> DriverDevice<D> {
    /// A device of `driver`, whose kernels `maker` makes and whose memory may have a bound.
    ///
    /// # Errors
    /// `DEVICE` where the driver gives no stream.
    pub fn new(
        driver: D,
        maker: Box<dyn KernelMaker>,
        services: Arc<dyn Services>,
        device_memory: Option<u64>,
    ) -> Result<Self> {
        let driver = Arc::new(driver);
        let compute = Queue::new(0, driver.stream()?);
        Ok(DriverDevice {
            buffers: Buffers::bounded(
                driver.clone(),
                maker.name(),
                services.clone(),
                device_memory,
            ),
            driver,
            queues: RwLock::new(vec![Arc::new(compute)]),
            events: RwLock::new(Events {
                points: HashMap::new(),
                last: 0,
            }),
            kernels: PreparedKernels::new(maker, services),
        })
    }

    fn queue(&self, stream: Stream) -> Result<Arc<Queue<D>>> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let found = usize::try_from(stream.0).ok().and_then(|at| queues.get(at));
        found
            .cloned()
            .ok_or_else(|| PluginError::invalid(format!("stream {} does not exist", stream.0)))
    }

    fn point(&self, event: Event) -> Result<Arc<Point<D>>> {
        let found = self.events().points.get(&event).cloned();
        found.ok_or_else(|| no_event(event))
    }

    // A panic while a lock is held leaves the tables valid: every change of them is one call.
    fn events(&self) -> RwLockReadGuard<'_, Events<D>> {
        self.events.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn events_mut(&self) -> RwLockWriteGuard<'_, Events<D>> {
        self.events.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the work of a queue.
    fn finish(&self, queue: &Queue<D>) -> Result<()> {
        let done = self.driver.synchronize(&queue.stream);
        done.map_err(|error| queue.told(error))?;
        queue.forget();
        Ok(())
    }

    /// Puts a copy on a queue, which may be done later.
    fn put(&self, places: [&Place<D>; 2], route: Route, queue: &Queue<D>) -> Result<()> {
        let [from, to] = places;
        let addresses = [from.address, to.address];
        // SAFETY: both places were checked, are of the kinds of the route, and the host orders
        // their uses by streams and events.
        let put = unsafe {
            self.driver
                .copy(addresses, from.bytes, route, &queue.stream)
        };
        put.map_err(|error| queue.told(error))
    }

    /// Copies between places of which the driver cannot copy both in the order of the queue: when
    /// the work before is done, and done on return.
    fn put_alone(
        &self,
        places: [&Place<D>; 2],
        route: Option<Route>,
        queue: &Queue<D>,
    ) -> Result<()> {
        self.finish(queue)?;
        match route {
            Some(route) => {
                self.put(places, route, queue)?;
                self.finish(queue)
            }
            None => {
                let [from, to] = places;
                // SAFETY: both are checked ranges of host memory, whose uses the host orders.
                unsafe {
                    std::ptr::copy(from.address.as_ptr(), to.address.as_ptr(), from.bytes);
                }
                Ok(())
            }
        }
    }
}

impl<D: Driver> Drop for DriverDevice<D> {
    fn drop(&mut self) {
        // Buffers are freed next. A failure of work that nobody waited for is told to nobody.
        let queues = self.queues.get_mut();
        for queue in queues.unwrap_or_else(PoisonError::into_inner) {
            let _ = self.driver.synchronize(&queue.stream);
        }
    }
}

fn no_event(event: Event) -> PluginError {
    PluginError::invalid(format!("event {} does not exist or was freed", event.0))
}

impl<D: Driver> Memory for DriverDevice<D> {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        match kind {
            MemoryKind::DEVICE => self.buffers.alloc(bytes),
            MemoryKind::PINNED => self.buffers.alloc_pinned(bytes),
            MemoryKind::MAPPED => Err(PluginError::unsupported(format!(
                "backend `{}` has mapped memory on the processors only, as device memory is not the host's",
                self.kernels.backend()
            ))),
            MemoryKind(other) => Err(PluginError::unsupported(format!(
                "backend `{}` has no memory of kind {other}",
                self.kernels.backend()
            ))),
        }
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.buffers.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        let queue = self.queue(stream)?;
        let to = self.buffers.place(to)?;
        check_lengths(from.len(), to.bytes)?;
        if from.is_empty() {
            return Ok(());
        }
        if to.home() == Home::Device {
            // SAFETY: the place was checked, and the host orders its uses.
            let put = unsafe { self.driver.upload(from, to.address, &queue.stream) };
            return put.map_err(|error| queue.told(error));
        }
        self.finish(&queue)?;
        // SAFETY: a checked range of host memory, whose uses the host orders.
        unsafe { std::ptr::copy(from.as_ptr(), to.address.as_ptr(), from.len()) };
        Ok(())
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        let queue = self.queue(stream)?;
        let from = self.buffers.place(from)?;
        check_lengths(from.bytes, to.len())?;
        if from.home() == Home::Device && !to.is_empty() {
            let addresses = [from.address, NonNull::from(&mut *to).cast()];
            // SAFETY: the place was checked, and the host orders its uses. `to` is borrowed until
            // the copy is done.
            let put = unsafe {
                self.driver
                    .copy(addresses, from.bytes, Route::ToHost, &queue.stream)
            };
            put.map_err(|error| queue.told(error))?;
            return self.finish(&queue);
        }
        self.finish(&queue)?;
        // SAFETY: as in `upload`.
        unsafe { std::ptr::copy(from.address.as_ptr(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        let queue = self.queue(stream)?;
        let (from, to) = (self.buffers.place(from)?, self.buffers.place(to)?);
        check_lengths(from.bytes, to.bytes)?;
        if from.bytes == 0 {
            return Ok(());
        }
        let places = [&from, &to];
        match (from.home(), to.home()) {
            (Home::Device, Home::Device) => self.put(places, Route::Within, &queue),
            (Home::Pinned | Home::Registered, Home::Device) => {
                self.put(places, Route::ToDevice, &queue)
            }
            (Home::Device, Home::Pinned | Home::Registered) => {
                self.put(places, Route::ToHost, &queue)
            }
            (Home::Lent | Home::Pageable, Home::Device) => {
                self.put_alone(places, Some(Route::ToDevice), &queue)
            }
            (Home::Device, Home::Lent | Home::Pageable) => {
                self.put_alone(places, Some(Route::ToHost), &queue)
            }
            _ => self.put_alone(places, None, &queue),
        }
    }

    /// Of what was asked for as pinned memory alone.
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let place = self.buffers.place(range).ok()?;
        matches!(place.home(), Home::Pinned | Home::Pageable).then_some(place.address)
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        self.buffers.lend(memory)
    }

    fn native_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let place = self.buffers.place(range).ok()?;
        (place.home() == Home::Device).then_some(place.address)
    }
}

impl<D: Driver> Streams for DriverDevice<D> {
    fn stream(&self) -> Result<Stream> {
        let stream = self.driver.stream()?;
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        let number = queues.len() as u64;
        queues.push(Arc::new(Queue::new(number, stream)));
        Ok(Stream(number))
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        let queue = self.queue(stream)?;
        let event = self.driver.record(&queue.stream);
        let event = event.map_err(|error| queue.told(error))?;
        let mut events = self.events_mut();
        events.last += 1;
        let name = Event(events.last);
        events.points.insert(name, Arc::new(Point { event, queue }));
        Ok(name)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        let (queue, point) = (self.queue(stream)?, self.point(event)?);
        let put = self.driver.wait(&queue.stream, &point.event);
        put.map_err(|error| point.queue.told(error))
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        let queue = self.queue(stream)?;
        self.finish(&queue)
    }

    fn query(&self, event: Event) -> Result<bool> {
        let point = self.point(event)?;
        let found = self.driver.query(&point.event);
        found.map_err(|error| point.queue.told(error))
    }

    fn free_event(&self, event: Event) -> Result<()> {
        let removed = self.events_mut().points.remove(&event);
        removed.map(drop).ok_or_else(|| no_event(event))
    }

    fn native_stream(&self, stream: Stream) -> Option<NonNull<()>> {
        let queue = self.queue(stream).ok()?;
        self.driver.native_stream(&queue.stream)
    }

    fn native_device(&self) -> Option<u32> {
        self.driver.native_device()
    }
}

impl<D: Driver> Kernels for DriverDevice<D> {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        self.kernels.prepare(request, decoders)
    }

    /// The library allocates temporary tensors, and waits where a kernel reads integers on the
    /// host.
    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let queue = self.queue(launch.stream)?;
        let entered = self.driver.enter(&queue.stream);
        entered.map_err(|error| queue.told(error))?;
        let done = self.kernels.launch(launch, &self.buffers);
        done.map_err(|error| queue.told(error))?;
        queue.remember(self.kernels.op(launch.kernel));
        Ok(())
    }

    fn release(&self, kernel: Kernel) -> Result<()> {
        self.kernels.release(kernel)
    }
}
