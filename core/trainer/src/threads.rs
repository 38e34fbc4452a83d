//! shim
use espalier_interface::Services;
pub struct HostServices(rayon::ThreadPool);
impl HostServices {
    pub fn start(n: Option<usize>) -> &'static Self {
        Box::leak(Box::new(HostServices(
            rayon::ThreadPoolBuilder::new()
                .num_threads(n.unwrap_or(0))
                .build()
                .unwrap(),
        )))
    }
    pub fn install<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.0.install(f)
    }
}
impl Services for HostServices {
    fn threads(&self) -> usize {
        self.0.current_num_threads()
    }
    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        use rayon::prelude::*;
        self.0.install(|| (0..count).into_par_iter().for_each(body))
    }
}
