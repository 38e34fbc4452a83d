//! A file -> the bytes of its rows with the place of each, and the file's sha256.
//!
//! `.jsonl` holds one row a line, `.json` an array of rows or the same as `.jsonl`. Only one row is
//! held at a time, so a file may be larger than memory.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use espalier_system::files::{FileKind, open_regular};
use sha2::{Digest, Sha256};

use super::error::{DataError, RowFault, RowLocation, RowNumber};

const BUFFER_BYTES: usize = 1 << 20;
/// The most bytes of one row that are held.
pub(super) const MOST_ROW_BYTES: usize = 64 << 20;

/// A row as it is in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RawRow {
    /// Its line, or its number in an array.
    pub number: RowNumber,
    /// The line of its first byte, counted from 1.
    pub line: u64,
    /// Bytes before it in that line.
    pub column: usize,
    /// The row's bytes, not yet known to be JSON or UTF-8; none for a row of more than
    /// [`MOST_ROW_BYTES`].
    pub bytes: Option<Vec<u8>>,
    /// Whether the file ended right after it, without a line end.
    pub last: bool,
}

/// What separates the rows of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Lines,
    Array,
}

/// The layouts that a file may have, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Lines,
    LinesOrArray,
}

/// The reader's position in an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Start,
    Rows,
    Behind,
}

/// Reads the rows of one file in order.
pub(super) struct Reader {
    path: PathBuf,
    input: BufReader<Hashing>,
    layout: Layout,
    between: Between,
    /// Rows of an array so far.
    rows: u64,
    line: u64,
    column: usize,
    bytes_read: u64,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let allowed = match extension.to_ascii_lowercase().as_str() {
            "jsonl" => Allowed::Lines,
            "json" => Allowed::LinesOrArray,
            _ => {
                return Err(DataError::FileKind {
                    path: path.to_path_buf(),
                    found: extension.into_owned(),
                });
            }
        };
        let opened = open_regular(path, FileKind::Rows);
        let (file, _) = opened.map_err(|e| DataError::io(path, e.into()))?;
        Reader::new(path, Box::new(file), allowed)
    }

    fn new(path: &Path, input: Box<dyn Read>, allowed: Allowed) -> Result<Self, DataError> {
        let hash = Sha256::new();
        let input = Hashing { inner: input, hash };
        let mut reader = Reader {
            path: path.to_path_buf(),
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            layout: Layout::Lines,
            between: Between::Start,
            rows: 0,
            line: 1,
            column: 0,
            bytes_read: 0,
        };
        reader.skip_byte_order_mark()?;
        if allowed == Allowed::LinesOrArray && reader.skip_white_space()? == Some(b'[') {
            reader.layout = Layout::Array;
        }
        Ok(reader)
    }

    /// Bytes consumed so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// sha256 of the whole file, in hexadecimal; to be called after the last row.
    pub(super) fn sha256(mut self) -> Result<String, DataError> {
        io::copy(&mut self.input, &mut io::sink()).map_err(|e| DataError::io(&self.path, e))?;
        Ok(hex(&self.input.into_inner().hash.finalize()))
    }

    /// The next row; none after the last.
    pub(super) fn next_row(&mut self) -> Result<Option<RawRow>, DataError> {
        match self.layout {
            Layout::Lines => self.next_line(),
            Layout::Array => self.next_element(),
        }
    }

    fn next_line(&mut self) -> Result<Option<RawRow>, DataError> {
        loop {
            let (line, column) = (self.line, self.column);
            let Some((mut bytes, last)) = self.line_bytes()? else {
                return Ok(None);
            };
            self.line += 1;
            self.column = 0;
            // The line end is removed: with it, the parser would name the next line for a truncated
            // row.
            if let Some(bytes) = &mut bytes {
                bytes.truncate(bytes.trim_ascii_end().len());
            }
            if bytes.as_ref().is_none_or(|bytes| !bytes.is_empty()) {
                return Ok(Some(RawRow {
                    number: RowNumber::Line(line),
                    line,
                    column,
                    bytes,
                    last,
                }));
            }
        }
    }

    /// The bytes up to the next line end, and whether the file ended before one. None at the file's
    /// end.
    #[allow(clippy::type_complexity)]
    fn line_bytes(&mut self) -> Result<Option<(Option<Vec<u8>>, bool)>, DataError> {
        let mut bytes = Vec::new();
        let mut length = 0;
        loop {
            let most = (MOST_ROW_BYTES + 1 - bytes.len()) as u64;
            let read = self.input.by_ref().take(most).read_until(b'\n', &mut bytes);
            let read = read.map_err(|e| DataError::io(&self.path, e))?;
            self.bytes_read += read as u64;
            length += read;
            let ended = bytes.last() == Some(&b'\n');
            if ended || read == 0 {
                let kept = (length <= MOST_ROW_BYTES).then_some(bytes);
                return Ok((length > 0).then_some((kept, !ended)));
            }
            if length > MOST_ROW_BYTES {
                bytes.clear();
            }
        }
    }

    fn next_element(&mut self) -> Result<Option<RawRow>, DataError> {
        let first = self.between == Between::Start;
        match (self.between, self.skip_white_space()?) {
            (Between::Behind, None) => return Ok(None),
            (Between::Behind, Some(byte)) => return Err(self.unexpected("the file's end", byte)),
            (_, None) => return Err(self.truncated(self.line)),
            // The bracket that begins the array, or the comma after a row.
            (Between::Start, Some(_)) | (Between::Rows, Some(b',')) => self.take(),
            (Between::Rows, Some(b']')) => return self.end_of_array(),
            (Between::Rows, Some(byte)) => return Err(self.unexpected("`,` or `]`", byte)),
        }
        self.between = Between::Rows;
        match self.skip_white_space()? {
            None => Err(self.truncated(self.line)),
            Some(b']') if first => self.end_of_array(),
            Some(byte @ (b',' | b']' | b'}')) => Err(self.unexpected("a row", byte)),
            Some(_) => self.element().map(Some),
        }
    }

    /// Consumes the bracket and checks that nothing follows.
    fn end_of_array(&mut self) -> Result<Option<RawRow>, DataError> {
        self.take();
        self.between = Between::Behind;
        self.next_element()
    }

    /// The bytes of the element that begins here: to its own last bracket or, of a scalar, to the
    /// comma or bracket after it.
    fn element(&mut self) -> Result<RawRow, DataError> {
        let (line, column) = (self.line, self.column);
        let mut bytes = Vec::new();
        let (mut depth, mut in_string, mut escaped, mut length) = (0u64, false, false, 0);
        while let Some(byte) = self.peek()? {
            let closes = matches!(byte, b']' | b'}') && !in_string;
            if depth == 0 && !in_string && (closes || byte == b',') {
                break;
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => depth += 1,
                _ if closes => depth -= 1,
                _ => {}
            }
            length += 1;
            if length <= MOST_ROW_BYTES {
                bytes.push(byte);
            }
            self.take();
            if closes && depth == 0 {
                break;
            }
        }
        if depth > 0 || in_string {
            return Err(self.truncated(line));
        }
        self.rows += 1;
        Ok(RawRow {
            number: RowNumber::Row(self.rows),
            line,
            column,
            bytes: (length <= MOST_ROW_BYTES).then_some(bytes),
            last: false,
        })
    }

    fn skip_byte_order_mark(&mut self) -> Result<(), DataError> {
        // A pipe may deliver fewer bytes at first; then the mark is reported as a bad row.
        self.peek()?;
        if self.input.buffer().starts_with(b"\xEF\xBB\xBF") {
            self.input.consume(3);
            self.bytes_read += 3;
        }
        Ok(())
    }

    /// Skips white space and returns the next byte without consuming it.
    fn skip_white_space(&mut self) -> Result<Option<u8>, DataError> {
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.take();
        }
        Ok(None)
    }

    fn peek(&mut self) -> Result<Option<u8>, DataError> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(DataError::io(&self.path, e)),
            }
        }
    }

    /// Consumes the byte that was peeked at.
    fn take(&mut self) {
        if self.input.buffer().first() == Some(&b'\n') {
            self.line += 1;
            self.column = 0;
        } else {
            self.column += 1;
        }
        self.input.consume(1);
        self.bytes_read += 1;
    }

    fn truncated(&self, line: u64) -> DataError {
        let place = RowLocation::line(&self.path, line);
        RowFault::Truncated.at(place)
    }

    fn unexpected(&self, expected: &str, byte: u8) -> DataError {
        RowFault::Json {
            column: self.column + 1,
            reason: format!("expected {expected}, found `{}`", byte.escape_ascii()),
        }
        .at(RowLocation::line(&self.path, self.line))
    }
}

/// A digest in hexadecimal.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes the bytes that pass through.
struct Hashing {
    inner: Box<dyn Read>,
    hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
