//! A folder of repositories -> a server on this machine that speaks the hub's protocol: lists of
//! files, tags and commits in headers, redirects to another host, ranges, refusals.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use espalier_system::files::hash_bytes;

/// The commit of every repository's `main`.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Files from this size on are kept elsewhere: requests are redirected.
const LARGE: usize = 4096;

/// What the server answers differently.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Downloads of large files that end after half of what was asked for.
    pub cut_off: usize,
    /// The content of large files has another last byte than announced.
    pub wrong: bool,
    /// Ranges are ignored: the whole file comes.
    pub whole: bool,
    /// Large files never come whole, and their connection stays open.
    pub silent: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// The first byte that was asked for.
    pub from: Option<u64>,
    /// Whether a single byte was asked for, to learn the size.
    pub asks_size: bool,
    pub token: Option<String>,
}

struct State {
    folder: PathBuf,
    faults: Mutex<Faults>,
    requests: Mutex<Vec<Request>>,
    /// The token that opens the repositories of `closed/`.
    token: String,
    port: u16,
}

/// The server; it answers as long as the test runs.
pub struct HubServer(Arc<State>);

impl HubServer {
    /// Serves the repositories `folder/models/org/name` and `folder/datasets/org/name`.
    pub fn start(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let state = Arc::new(State {
            folder: folder.to_owned(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            token: "hf_secret".to_owned(),
            port: listener.local_addr().expect("bound").port(),
        });
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&served);
                // The other end may close at any time.
                thread::spawn(move || state.serve(&stream));
            }
        });
        HubServer(state)
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port)
    }

    pub fn set(&self, faults: Faults) {
        *self.0.faults.lock().expect("no panic") = faults;
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *self.0.requests.lock().expect("no panic"))
    }
}

impl State {
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next()?.ok()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut request = Request {
            path,
            from: None,
            asks_size: false,
            token: None,
        };
        while let Some(Ok(line)) = lines.next() {
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            match name.to_lowercase().as_str() {
                "range" => {
                    let from = value.strip_prefix("bytes=")?.split('-').next()?;
                    request.from = from.parse().ok();
                    request.asks_size = value == "bytes=0-0";
                }
                "authorization" => {
                    request.token = value.strip_prefix("Bearer ").map(str::to_owned);
                }
                _ => {}
            }
        }
        self.requests
            .lock()
            .expect("no panic")
            .push(request.clone());
        self.answer(&request, stream);
        Some(())
    }

    fn answer(&self, request: &Request, stream: &TcpStream) {
        let parts: Vec<&str> = request.path.split('/').skip(1).collect();
        let answered = match parts.as_slice() {
            ["api", kind, org, name, "revision", "main" | COMMIT] => {
                self.list(request, kind, [org, name], stream)
            }
            ["datasets", org, name, "resolve", "main" | COMMIT, file @ ..] => {
                let place = format!("datasets/{org}/{name}/{}", file.join("/"));
                self.resolve(request, org, &place, stream)
            }
            [org, name, "resolve", "main" | COMMIT, file @ ..] => {
                let place = format!("models/{org}/{name}/{}", file.join("/"));
                self.resolve(request, org, &place, stream)
            }
            ["elsewhere", place @ ..] => self.large(request, &place.join("/"), stream),
            _ => None,
        };
        if answered.is_none() {
            say(stream, "404 Not Found", &[], b"{\"error\": \"not found\"}");
        }
    }

    /// Whether the repository is closed to the request; then it was answered.
    fn refuses(&self, request: &Request, org: &str, stream: &TcpStream) -> bool {
        let status = match &request.token {
            _ if org != "closed" => return false,
            Some(token) if *token == self.token => return false,
            Some(_) => "403 Forbidden",
            None => "401 Unauthorized",
        };
        say(stream, status, &[], b"{}");
        true
    }

    fn list(
        &self,
        request: &Request,
        kind: &str,
        [org, name]: [&str; 2],
        stream: &TcpStream,
    ) -> Option<()> {
        let folder = self.folder.join(kind).join(org).join(name);
        if self.refuses(request, org, stream) {
            return Some(());
        }
        let files = files_below(&folder, "")?;
        let file = |name: &String| format!("{{\"rfilename\": \"{name}\"}}");
        let files: Vec<String> = files.iter().map(file).collect();
        let list = format!(
            "{{\"id\": \"{org}/{name}\", \"sha\": \"{COMMIT}\", \"siblings\": [{}]}}",
            files.join(", ")
        );
        say(stream, "200 OK", &[], list.as_bytes());
        Some(())
    }

    fn resolve(&self, request: &Request, org: &str, place: &str, stream: &TcpStream) -> Option<()> {
        let content = fs::read(self.folder.join(place)).ok()?;
        if self.refuses(request, org, stream) {
            return Some(());
        }
        let hash = hash_bytes(&content);
        let commit = ("X-Repo-Commit", COMMIT.to_owned());
        if content.len() < LARGE {
            let from = request.from.unwrap_or(0) as usize;
            let tag = ("ETag", format!("\"{}\"", &hash[..40]));
            let range = range(from, content.len());
            say(
                stream,
                "206 Partial Content",
                &[commit, tag, range],
                &content[from..],
            );
            return Some(());
        }
        let location = format!("http://localhost:{}/elsewhere/{place}", self.port);
        let headers = [
            commit,
            ("ETag", "\"of the pointer\"".to_owned()),
            ("X-Linked-Etag", format!("\"{hash}\"")),
            ("X-Linked-Size", content.len().to_string()),
            ("Location", location),
        ];
        say(stream, "302 Found", &headers, b"");
        Some(())
    }

    fn large(&self, request: &Request, place: &str, stream: &TcpStream) -> Option<()> {
        let mut content = fs::read(self.folder.join(place)).ok()?;
        if request.asks_size {
            let range = ("Content-Range", format!("bytes 0-0/{}", content.len()));
            say(stream, "206 Partial Content", &[range], &content[..1]);
            return Some(());
        }
        let mut faults = self.faults.lock().expect("no panic");
        let from = match request.from {
            Some(from) if !faults.whole => from as usize,
            _ => 0,
        };
        if from >= content.len() {
            say(stream, "416 Range Not Satisfiable", &[], b"");
            return Some(());
        }
        if faults.wrong {
            *content.last_mut()? ^= 1;
        }
        let rest = &content[from..];
        let head = head(
            "206 Partial Content",
            &[range(from, content.len())],
            rest.len(),
        );
        let cut = faults.cut_off > 0;
        faults.cut_off = faults.cut_off.saturating_sub(1);
        let is_silent = faults.silent;
        drop(faults);
        let sent = if cut || is_silent {
            &rest[..rest.len() / 2]
        } else {
            rest
        };
        let mut stream = stream;
        // The other end may have closed.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(sent);
        if is_silent {
            loop {
                thread::park();
            }
        }
        Some(())
    }
}

fn range(from: usize, all: usize) -> (&'static str, String) {
    let last = all.saturating_sub(1);
    ("Content-Range", format!("bytes {from}-{last}/{all}"))
}

fn head(status: &str, headers: &[(&str, String)], bytes: usize) -> String {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

fn say(mut stream: &TcpStream, status: &str, headers: &[(&str, String)], body: &[u8]) {
    // The other end may have closed.
    let _ = stream.write_all(head(status, headers, body.len()).as_bytes());
    let _ = stream.write_all(body);
}

/// The names of the files below `folder`, sorted; none where there is no such folder.
fn files_below(folder: &Path, prefix: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        let name = format!("{prefix}{}", path.file_name()?.to_str()?);
        if path.is_dir() {
            found.extend(files_below(&path, &format!("{name}/"))?);
        } else {
            found.push(name);
        }
    }
    found.sort();
    Some(found)
}
