//! Alternating bodies -> seconds of this thread's CPU time for each.

/// CPU time of this thread in seconds.
pub fn thread_secs() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// CPU seconds of the fastest of several turns of each body.
pub fn best<const N: usize>(mut bodies: [&mut dyn FnMut(); N]) -> [f64; N] {
    let turn = |body: &mut dyn FnMut(), times: usize| {
        let start = thread_secs();
        (0..times).for_each(|_| body());
        (thread_secs() - start) / times as f64
    };
    let times = bodies
        .each_mut()
        .map(|body| (1e-3 / turn(body, 1)).ceil() as usize);
    let mut least = [f64::INFINITY; N];
    for _ in 0..12 {
        for ((body, least), &times) in bodies.iter_mut().zip(&mut least).zip(&times) {
            *least = least.min(turn(body, times));
        }
    }
    least
}
