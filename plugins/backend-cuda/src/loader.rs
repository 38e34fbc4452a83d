//! Sources that kernels are prepared from -> modules on a card, at the first launch.
//!
//! A source waits from `prepare` on. The first launch of a kernel, of any source, compiles all that
//! wait, on the host's threads: so those of a whole program are compiled at once. A source whose
//! kernels may never be launched does not wait: its own first launch compiles it. A source that a
//! user wrote is compiled when it is asked for, so that its errors are those of `prepare`.
#![allow(unsafe_code)] // Calls of the driver.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUmodule;
use espalier_interface::{ErrorCode, LogLevel, PluginError, Result, Services};

use crate::card::Card;
use crate::compiler::Compiler;
use crate::sources::Source;

/// A compilation that takes longer is told to the user.
const QUICK: Duration = Duration::from_secs(2);

/// The code of a text that is of a newer version than the driver reads.
const NEWER_TEXT: u32 = 222;

/// One device of a process compiles at a time: the others then find its kernels on disk.
static COMPILING: Mutex<()> = Mutex::new(());

/// The modules of a card, and what they are made with.
pub struct Loader {
    /// The card.
    pub card: Arc<Card>,
    compiler: Compiler,
    services: Arc<dyn Services>,
    /// Modules that are asked for and not loaded.
    waiting: Mutex<Vec<Arc<Module>>>,
    /// Set once code could not be kept.
    is_unkept: AtomicBool,
}

/// A source with definitions before it, as a module of a card once it is loaded.
pub struct Module {
    card: Arc<Card>,
    source: Source,
    definitions: String,
    loaded: OnceLock<Result<Handle>>,
}

/// The driver's handle of a module.
#[derive(Clone, Copy)]
struct Handle(CUmodule);

// SAFETY: modules may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Module {
    fn drop(&mut self) {
        if let Some(Ok(handle)) = self.loaded.get()
            && self.card.enter().is_ok()
        {
            // SAFETY: the driver loaded it, and nothing uses its functions.
            unsafe { (self.card.driver.unload_module)(handle.0) };
        }
    }
}

impl Module {
    fn handle(&self) -> Option<Result<CUmodule>> {
        let loaded = self.loaded.get()?;
        Some(loaded.clone().map(|handle| handle.0))
    }
}

impl Loader {
    /// No modules yet.
    pub fn new(card: Arc<Card>, compiler: Compiler, services: Arc<dyn Services>) -> Self {
        Loader {
            card,
            compiler,
            services,
            waiting: Mutex::default(),
            is_unkept: AtomicBool::new(false),
        }
    }

    /// A module that is not loaded and does not wait.
    pub fn module(&self, source: Source, definitions: &str) -> Arc<Module> {
        Arc::new(Module {
            card: self.card.clone(),
            source,
            definitions: definitions.to_owned(),
            loaded: OnceLock::new(),
        })
    }

    /// Lets a module wait for the first launch of a kernel, unless it does or is loaded.
    ///
    /// # Errors
    /// `DEVICE` where it is not on disk and there is no compiler.
    pub fn enlist(&self, module: &Arc<Module>) -> Result<()> {
        let mut waiting = self.waiting();
        if module.handle().is_some() || module.is_among(&waiting) {
            return Ok(());
        }
        if let Err(error) = self.compiler.check()
            && self.kept(module).is_none()
        {
            return Err(self.absent(module, &error));
        }
        waiting.push(module.clone());
        Ok(())
    }

    /// The driver's handle of a module, after it and all that wait are loaded.
    ///
    /// # Errors
    /// `DEVICE` where the module cannot be compiled or loaded, `CANCELLED` where the user asked to
    /// stop before.
    pub fn loaded(&self, module: &Arc<Module>) -> Result<CUmodule> {
        if let Some(handle) = module.handle() {
            return handle;
        }
        let mut waiting = self.waiting();
        if module.handle().is_none() {
            if !module.is_among(&waiting) {
                waiting.push(module.clone());
            }
            self.load(&waiting);
            waiting.retain(|module| module.loaded.get().is_none());
        }
        module.handle().unwrap_or_else(cancelled)
    }

    /// The same of this module alone.
    ///
    /// # Errors
    /// As [`Loader::loaded`].
    pub fn loaded_now(&self, module: &Arc<Module>) -> Result<CUmodule> {
        let mut waiting = self.waiting();
        if module.handle().is_none() {
            self.load(std::slice::from_ref(module));
            waiting.retain(|module| module.loaded.get().is_none());
        }
        module.handle().unwrap_or_else(cancelled)
    }

    /// Loads modules that are not loaded. The list is locked meanwhile: a launch of another thread
    /// waits for it.
    fn load(&self, modules: &[Arc<Module>]) {
        let kept: Vec<_> = modules.iter().map(|module| self.kept(module)).collect();
        let mut missing = Vec::new();
        for (module, code) in modules.iter().zip(kept) {
            let put = code.map(|code| self.put(module, &code));
            match (put, self.compiler.check()) {
                (Some(Ok(handle)), _) => module.set(Ok(handle)),
                (_, Ok(())) => missing.push(module),
                (Some(Err(refused)), Err(error)) => module.set(Err(also(refused, &error))),
                (None, Err(error)) => module.set(Err(self.absent(module, &error))),
            }
        }
        if !missing.is_empty() {
            self.compile(&missing);
        }
    }

    /// The code of a module, if it is on disk.
    fn kept(&self, module: &Module) -> Option<Vec<u8>> {
        self.compiler.kept(module.source, &module.definitions)
    }

    /// An error of the compiler for a module whose code is not on disk.
    fn absent(&self, module: &Module, error: &PluginError) -> PluginError {
        let (source, target) = (module.source.name, self.compiler.target());
        let (places, why) = (self.compiler.files(), &error.message);
        let what = format!("`{source}` is not among the kernels for {target} in {places}: {why}");
        PluginError::new(error.code, what)
    }

    /// Compiles modules and loads them, as many at once as the host has threads.
    fn compile(&self, modules: &[&Arc<Module>]) {
        let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, done) = (Instant::now(), AtomicUsize::new(0));
        let (is_told, count) = (AtomicBool::new(false), modules.len());
        let task = format!("compiling kernels for {}", self.compiler.target());
        self.services.parallel_for(count, &|index| {
            let module = modules[index];
            if self.services.cancelled() {
                return;
            }
            module.set(self.made(module));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.services.progress(&task, done as u64, count as u64);
            let is_long = done < count && start.elapsed() > QUICK;
            if is_long && !is_told.swap(true, Ordering::Relaxed) {
                self.tell(&task, [done, count]);
            }
        });
    }

    /// Tells the user what takes long.
    fn tell(&self, task: &str, [done, count]: [usize; 2]) {
        let kept = match self.compiler.cache() {
            Some(folder) => format!("once: they are kept in {}", folder.display()),
            None => "at every run: backend.cuda.cache_dir names no folder".to_owned(),
        };
        let what = format!("{task}, {done} of {count} sources, {kept}");
        self.services.log(LogLevel::WARN, &what);
    }

    /// A module that is compiled now, unless another device of this process has done it.
    fn made(&self, module: &Module) -> Result<Handle> {
        let (source, definitions) = (module.source, module.definitions.as_str());
        if let Some(Ok(handle)) = self.kept(module).map(|code| self.put(module, &code)) {
            return Ok(handle);
        }
        let code = self.compiler.compiled(source, definitions)?;
        if let Err(what) = self.compiler.keep(source, definitions, &code)
            && !self.is_unkept.swap(true, Ordering::Relaxed)
        {
            self.services.log(LogLevel::WARN, &what);
        }
        self.put(module, &code)
    }

    /// Puts code on the card.
    fn put(&self, module: &Module, code: &[u8]) -> Result<Handle> {
        self.card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver reads the code, whose length it holds itself, and writes a handle.
        let status = unsafe { (self.card.driver.load_module)(&raw mut raw, code.as_ptr().cast()) };
        let loaded = self.card.called(module.source.name, status);
        loaded.map_err(|error| {
            if status != NEWER_TEXT {
                return error;
            }
            let message = format!(
                "{}: its compiler is newer than the driver; update the driver, install an older NVRTC, or set backend.cuda.arch_path = \"auto\", which needs the same major version alone",
                error.message
            );
            PluginError { message, ..error }
        })?;
        Ok(Handle(raw))
    }

    // A panic while the lock is held leaves the list valid: loaded modules may be in it.
    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Module>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    fn is_among(self: &Arc<Self>, modules: &[Arc<Module>]) -> bool {
        modules.iter().any(|module| Arc::ptr_eq(module, self))
    }

    fn set(&self, loaded: Result<Handle>) {
        // The list's lock is held: nobody else sets it.
        let _ = self.loaded.set(loaded);
    }
}

/// An error of the driver for a file's code, which cannot be compiled anew.
fn also(refused: PluginError, error: &PluginError) -> PluginError {
    PluginError {
        message: format!(
            "{}: the driver refuses the code on disk; {}",
            refused.message, error.message
        ),
        ..refused
    }
}

fn cancelled() -> Result<CUmodule> {
    let what = "the run was asked to stop while its kernels were compiled";
    Err(PluginError::new(ErrorCode::CANCELLED, what))
}
