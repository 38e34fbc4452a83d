//! Standard error as a terminal for bars -> the same, without drawing after the first failure. A
//! terminal may be closed at any time, and the work does not depend on it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;
use indicatif::TermLike;

/// A terminal that never returns an error.
#[derive(Debug)]
pub struct Screen {
    terminal: Term,
    gone: AtomicBool,
}

impl Screen {
    /// Standard error's terminal.
    pub fn new() -> Self {
        Screen {
            terminal: Term::buffered_stderr(),
            gone: AtomicBool::new(false),
        }
    }

    fn draw(&self, draw: impl FnOnce(&Term) -> io::Result<()>) -> io::Result<()> {
        if !self.gone.load(Ordering::Relaxed) && draw(&self.terminal).is_err() {
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.terminal.size().1
    }

    fn height(&self) -> u16 {
        self.terminal.size().0
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.draw(|terminal| terminal.move_cursor_up(lines))
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.draw(|terminal| terminal.move_cursor_down(lines))
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.draw(|terminal| terminal.move_cursor_right(columns))
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.draw(|terminal| terminal.move_cursor_left(columns))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(|terminal| terminal.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(|terminal| terminal.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(Term::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.draw(Term::flush)
    }
}
