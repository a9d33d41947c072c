//! A small HTTP server: GET on one path, a bounded number of clients, a bounded time for each.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::families::CONTENT_TYPE;

/// The one path.
pub const PATH: &str = "/metrics";
/// Connections at a time; further ones are told to come again.
const MAX_CLIENTS: usize = 8;
/// For the whole request, and again for each part of the answer that the client takes.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest head of a request, bytes.
const MAX_HEAD: usize = 8 << 10;
/// After a connection could not be taken: without a free descriptor the next one fails at once too.
const PAUSE: Duration = Duration::from_millis(100);

/// Where it listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

/// An answer without its head.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: &'static str,
    more: &'static str,
    body: String,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address)? })
    }

    /// Where it listens: with port 0 the system has chosen one.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for ever; `page` makes the text.
    pub fn run(&self, page: &Arc<dyn Fn() -> String + Send + Sync>) {
        let clients = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(PAUSE);
                continue;
            };
            let client = Client(Arc::clone(&clients));
            let full = clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS;
            if full {
                // Without reading: nobody is waited for here. A small answer fits into an empty buffer.
                let _ = stream.set_nonblocking(true);
                let _ = write(&stream, &busy());
                continue;
            }
            let page = Arc::clone(page);
            let _ = thread::Builder::new().spawn(move || {
                let _client = client;
                let _ = serve(&stream, page.as_ref());
            });
        }
    }
}

/// Counts a client as long as it lives.
struct Client(Arc<AtomicUsize>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(stream: &TcpStream, page: &(dyn Fn() -> String + Send + Sync)) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let head = head(stream, Instant::now() + CLIENT_TIMEOUT)?;
    write(stream, &response(&head, page))?;
    // What the client sent beside the head would reset the connection, and the answer with it.
    stream.shutdown(Shutdown::Write)?;
    let mut rest = [0; 1024];
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    while Instant::now() < deadline {
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        if (&mut &*stream).read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// The head of a request, of bounded length. However slowly it comes, `deadline` holds for all of it.
fn head(mut stream: &TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if head.windows(4).any(|four| four == b"\r\n\r\n") || head.len() > MAX_HEAD {
            return Ok(head);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => head.extend_from_slice(&piece[..bytes]),
        }
    }
}

fn response(head: &[u8], page: &(dyn Fn() -> String + Send + Sync)) -> Response {
    let plain = |status, body: &str| Response { status, more: "", body: format!("{body}\n") };
    if head.len() > MAX_HEAD {
        return plain("431 Request Header Fields Too Large", "the request is too long");
    }
    let line = head.split(|&byte| byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) = (method, target, version, words.next())
    else {
        return plain("400 Bad Request", "expected a request of HTTP/1.0 or HTTP/1.1");
    };
    if target.split('?').next() != Some(PATH) {
        return plain("404 Not Found", "the metrics are at /metrics");
    }
    if method != "GET" {
        return Response { more: "Allow: GET\r\n", ..plain("405 Method Not Allowed", "only GET is allowed") };
    }
    Response { status: "200 OK", more: "", body: page() }
}

fn busy() -> Response {
    Response { status: "503 Service Unavailable", more: "Retry-After: 1\r\n", body: "too many clients\n".to_owned() }
}

fn write(mut stream: &TcpStream, response: &Response) -> io::Result<()> {
    let Response { status, more, body } = response;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> SocketAddr {
        let server = Server::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        thread::spawn(move || server.run(&(Arc::new(|| "x 1\n".to_owned()) as _)));
        address
    }

    /// Status and body.
    fn answer(address: SocketAddr, request: &[u8]) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length: usize = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert_eq!(length, body.len());
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn only_get_on_one_path_is_answered() {
        let address = started();
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
            ("\u{0}\r\n\r\n", "400 Bad Request"),
        ] {
            let (line, body) = answer(address, request.as_bytes());
            assert_eq!(line, format!("HTTP/1.1 {status}"), "{request:?}");
            assert_eq!(body == "x 1\n", status == "200 OK", "{request:?}");
        }
        let (line, _) = answer(address, &[b'x'; MAX_HEAD + 1024]);
        assert!(line.contains("431"), "{line}");
    }

    #[test]
    fn clients_that_say_nothing_do_not_keep_others_away() {
        let address = started();
        let silent: Vec<_> = (0..MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        // Each of them is taken before the next one, so all are by now or soon.
        // One that is turned away may lose the answer to the reset of its connection.
        let status = || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut text = String::new();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            let _ = stream.read_to_string(&mut text);
            text.lines().next().unwrap_or_default().to_owned()
        };
        assert!((0..100).any(|_| status() == "HTTP/1.1 503 Service Unavailable"), "there is room for eight");
        drop(silent);
        assert!((0..1_000).any(|_| status() == "HTTP/1.1 200 OK"), "there is room again");
    }
}
