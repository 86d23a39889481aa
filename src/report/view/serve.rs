//! Serves one page on loopback to a browser of this machine. Other pages in that browser cannot read it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum length of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// Time for a head to arrive, and for each piece of an answer to be sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a whole answer.
const MAX_ANSWER: Duration = Duration::from_secs(60);
/// Bytes of an answer that are sent at a time.
const PIECE: usize = 64 << 10;
/// Maximum number of connections, because a browser opens some that it does not use. One more closes another one.
const MAX_CONNECTIONS: usize = 32;

/// A port of 127.0.0.1.
pub struct Server {
    listener: TcpListener,
    port: u16,
}

/// The answer instead of the page: status and reason.
type Refusal = (u16, &'static str);

/// The open connections, the oldest first.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<Vec<Arc<Connection>>>>);

struct Connection {
    stream: TcpStream,
    /// Whether its request was read, so that it is being answered.
    is_answered: AtomicBool,
}

impl Open {
    /// Adds a connection. If there are too many, closes the oldest that has not sent a request, else the oldest. A client that
    /// asks at once and reads the answer keeps its connection, however many others do neither.
    fn admit(&self, stream: TcpStream) -> Arc<Connection> {
        let connection = Arc::new(Connection { stream, is_answered: AtomicBool::new(false) });
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CONNECTIONS {
            let silent = open.iter().position(|other| !other.is_answered.load(Ordering::Relaxed));
            let slowest = open.remove(silent.unwrap_or(0));
            // this ends its thread's wait
            let _ = slowest.stream.shutdown(Shutdown::Both);
        }
        open.push(Arc::clone(&connection));
        connection
    }

    fn leave(&self, connection: &Arc<Connection>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, connection));
    }
}

impl Server {
    /// Binds a port; without one, any free port.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn bind(port: Option<u16>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0)))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Serves until the process ends.
    pub fn run(self, page: Vec<u8>) {
        let (page, open) = (Arc::new(page), Open::default());
        for connection in self.listener.incoming() {
            let Ok(connection) = connection else {
                // out of descriptors, for example; some will be free again
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let connection = open.admit(connection);
            let (page, port) = (Arc::clone(&page), self.port);
            let (of_thread, its_open) = (Arc::clone(&connection), open.clone());
            let serve = move || {
                // a client that does not read the answer needs no error
                let _ = answer(&of_thread, &page, port);
                its_open.leave(&of_thread);
            };
            if thread::Builder::new().spawn(serve).is_err() {
                open.leave(&connection);
            }
        }
    }
}

fn answer(of: &Connection, page: &[u8], port: u16) -> io::Result<()> {
    let mut connection = &of.stream;
    connection.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(connection)?;
    of.is_answered.store(true, Ordering::Relaxed);
    let is_head_alone = head.as_ref().is_ok_and(|head| head.starts_with(b"HEAD "));
    let asked = head.and_then(|head| is_for_page(&head, port));
    let (status, kind, body) = match asked {
        Ok(()) => ((200, "OK"), "text/html", page),
        Err(refusal) => (refusal, "text/plain", refusal.1.as_bytes()),
    };
    let allow = if status.0 == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    write!(
        connection,
        "HTTP/1.1 {} {}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: frame-ancestors 'none'\r\n{allow}\r\n",
        status.0,
        status.1,
        body.len()
    )?;
    if !is_head_alone {
        let begun = Instant::now();
        for piece in body.chunks(PIECE) {
            connection.write_all(piece)?;
            if begun.elapsed() > MAX_ANSWER {
                break;
            }
        }
    }
    connection.shutdown(Shutdown::Write)?;
    // closing a connection before all is read discards the answer
    connection.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = [0; 4096];
    for _ in 0..16 {
        if connection.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads up to the empty line.
fn read_head(mut connection: &TcpStream) -> io::Result<Result<Vec<u8>, Refusal>> {
    let begun = Instant::now();
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(Err((408, "Request Timeout")));
        }
        connection.set_read_timeout(Some(left))?;
        let read = match connection.read(&mut part) {
            Ok(0) => return Ok(Err((400, "Bad Request"))),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        head.extend_from_slice(part.get(..read).unwrap_or_default());
        let end = memchr::memmem::find(&head, b"\r\n\r\n");
        match end {
            Some(end) if end <= MAX_HEAD => {
                head.truncate(end);
                return Ok(Ok(head));
            }
            None if head.len() <= MAX_HEAD => {}
            _ => return Ok(Err((431, "Request Header Fields Too Large"))),
        }
    }
}

/// Whether a request is for the page. Checks the host first, because a foreign page may reach this address under another name to
/// read this page (DNS rebinding).
fn is_for_page(head: &[u8], port: u16) -> Result<(), Refusal> {
    const BAD: Refusal = (400, "Bad Request");
    let head = std::str::from_utf8(head).map_err(|_| BAD)?;
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = request[..] else { return Err(BAD) };
    let mut hosts = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        if name.eq_ignore_ascii_case("host") {
            hosts.push(value.trim_matches([' ', '\t']));
        }
    }
    let [host] = hosts[..] else { return Err(BAD) };
    let is_ours = ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| {
        let with_port = format!("{name}:{port}");
        // a browser omits the default port of its scheme
        host.eq_ignore_ascii_case(&with_port) || (port == 80 && host.eq_ignore_ascii_case(name))
    });
    match (is_ours, target, method) {
        (false, ..) => Err((421, "Misdirected Request")),
        (_, "/", "GET" | "HEAD") => Ok(()),
        (_, "/", _) => Err((405, "Method Not Allowed")),
        _ => Err((404, "Not Found")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_given_and_only_to_this_machines_names() {
        let status = |head: &str| is_for_page(head.replace('\n', "\r\n").as_bytes(), 81).map_err(|(status, _)| status);
        for host in ["localhost:81", "LOCALHOST:81", "127.0.0.1:81", "[::1]:81"] {
            assert_eq!(status(&format!("GET / HTTP/1.1\nhost:\t{host} ")), Ok(()));
            assert_eq!(status(&format!("HEAD / HTTP/1.0\nA: b\nHost: {host}")), Ok(()));
        }
        for host in
            ["evil.example:81", "localhost", "localhost:8", "localhost.:81", "127.0.0.1.evil:81", "localhost:81:81", ""]
        {
            assert_eq!(status(&format!("GET / HTTP/1.1\nHost: {host}")), Err(421), "{host}");
        }
        assert_eq!(status("GET / HTTP/1.1"), Err(400));
        assert_eq!(status("GET / HTTP/1.1\nHost: localhost:81\nHost: localhost:81"), Err(400));
        assert_eq!(status("GET / HTTP/2\nHost: localhost:81"), Err(400));
        assert_eq!(status("GET /etc HTTP/1.1\nHost: localhost:81"), Err(404));
        assert_eq!(status("POST / HTTP/1.1\nHost: localhost:81"), Err(405));
        assert_eq!(is_for_page(b"GET / HTTP/1.1\r\nHost: localhost", 80), Ok(()));
    }
}
