//! Small HTTP server: GET and HEAD, a bounded number of clients, a time limit for each.
//!
//! On the loopback address, only requests whose Host names that address are served. Otherwise a web page
//! could point its own DNS name there and read the metrics.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::text::CONTENT_TYPE;

pub const PATH: &str = "/metrics";
/// HTML page at `/`.
const WELCOME: &str = "<!DOCTYPE html><title>gpuwhy exporter</title><h1>gpuwhy exporter</h1>\
    <p><a href=\"/metrics\">Metrics</a> of this node's programs, for Prometheus.\n";
/// Maximum number of requests served at a time; further ones get a response that asks them to retry.
const MAX_CLIENTS: usize = 8;
/// Maximum number of connections. Those that have not sent a request yet do not count as clients.
const MAX_CONNECTIONS: usize = 64;
/// Time limit for the complete request, and again for each write of the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a request head, bytes.
const MAX_HEAD: usize = 8 << 10;
/// Pause after a failed accept: without a free descriptor the next one would fail immediately too.
const PAUSE: Duration = Duration::from_millis(100);

/// HTTP server with its listening socket.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

/// Parts of a response.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: &'static str,
    kind: &'static str,
    more: &'static str,
    body: String,
    /// True for a HEAD request: everything but the body is sent.
    head_only: bool,
}

impl Server {
    /// Listens on an address. Fails when the address is unavailable.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address)? })
    }

    /// Local address; for port 0, with the port that the system has chosen. Fails when the system cannot
    /// report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves forever; `page` returns the text of the metrics.
    pub fn run(&self, page: &Arc<dyn Fn() -> String + Send + Sync>) {
        let address = self.address().ok();
        let (connections, clients) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(PAUSE);
                continue;
            };
            let connection = Client::new(&connections);
            if connection.before >= MAX_CONNECTIONS {
                // Dropped without reading, so that a flood of connections takes no memory.
                continue;
            }
            let (page, clients) = (Arc::clone(page), Arc::clone(&clients));
            let _ = thread::Builder::new().spawn(move || {
                let _connection = connection;
                let _ = serve(&stream, address, &clients, page.as_ref());
            });
        }
    }
}

/// Counts as one client until dropped.
struct Client {
    all: Arc<AtomicUsize>,
    /// Number of clients before this one.
    before: usize,
}

impl Client {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        let before = all.fetch_add(1, Ordering::Relaxed);
        Self { all: Arc::clone(all), before }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(
    stream: &TcpStream,
    address: Option<SocketAddr>,
    clients: &Arc<AtomicUsize>,
    page: &(dyn Fn() -> String + Send + Sync),
) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let head = head(stream, Instant::now() + CLIENT_TIMEOUT)?;
    // Counted only after the request arrived: silent connections do not block other clients.
    let client = Client::new(clients);
    let answer = if client.before < MAX_CLIENTS { response(&head, address, page) } else { busy() };
    write(stream, &answer)?;
    drop(client);
    // Closing with unread input would reset the connection, and the response would be lost.
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

/// Reads the head of a request, of bounded length. `deadline` covers the complete head, however slowly it
/// arrives.
fn head(mut stream: &TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        // Some clients end lines with a bare LF.
        let is_complete =
            [&b"\r\n\r\n"[..], b"\n\n"].iter().any(|end| head.windows(end.len()).any(|part| part == *end));
        if is_complete || head.len() > MAX_HEAD {
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

fn response(head: &[u8], address: Option<SocketAddr>, page: &(dyn Fn() -> String + Send + Sync)) -> Response {
    if head.len() > MAX_HEAD {
        return plain("431 Request Header Fields Too Large", "the request is too long");
    }
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) = (method, target, version, words.next())
    else {
        return plain("400 Bad Request", "expected a request of HTTP/1.0 or HTTP/1.1");
    };
    let hosts = lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    if !hosts.into_iter().all(|(_, host)| is_own_name(host.trim(), address)) {
        return plain(
            "421 Misdirected Request",
            "this address can be reached from this machine alone: ask for localhost, 127.0.0.1 or [::1]",
        );
    }
    let head_only = method == "HEAD";
    let answer = match (target.split('?').next(), method) {
        (Some("/"), "GET" | "HEAD") => Response { kind: "text/html; charset=utf-8", ..plain("200 OK", WELCOME) },
        (Some(PATH), "GET" | "HEAD") => {
            Response { status: "200 OK", kind: CONTENT_TYPE, more: "", body: page(), head_only: false }
        }
        (Some("/" | PATH), _) => Response {
            more: "Allow: GET, HEAD\r\n",
            ..plain("405 Method Not Allowed", "only GET and HEAD are allowed")
        },
        _ => plain("404 Not Found", "the metrics are at /metrics"),
    };
    Response { head_only, ..answer }
}

/// True if `host`, with or without a port, names the loopback address that the server listens on. Any name is
/// accepted for an address that other machines can reach, because those names are unknown here.
fn is_own_name(host: &str, address: Option<SocketAddr>) -> bool {
    let Some(own) = address.map(|address| address.ip()).filter(IpAddr::is_loopback) else { return true };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip == own || ["127.0.0.1", "::1"].contains(&ip.to_string().as_str()))
}

fn plain(status: &'static str, body: &str) -> Response {
    let kind = "text/plain; charset=utf-8";
    Response { status, kind, more: "", body: format!("{}\n", body.trim_end()), head_only: false }
}

fn busy() -> Response {
    Response { more: "Retry-After: 1\r\n", ..plain("503 Service Unavailable", "too many clients") }
}

fn write(mut stream: &TcpStream, response: &Response) -> io::Result<()> {
    let Response { status, kind, more, body, head_only } = response;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if *head_only { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(page: impl Fn() -> String + Send + Sync + 'static) -> SocketAddr {
        let server = Server::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        thread::spawn(move || server.run(&(Arc::new(page) as _)));
        address
    }

    fn started() -> SocketAddr {
        serving(|| "x 1\n".to_owned())
    }

    /// Status and body.
    fn answer(address: SocketAddr, request: &[u8]) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length: usize = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert!(length == body.len() || request.starts_with(b"HEAD") && body.is_empty());
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn get_and_head_are_answered_on_two_paths() {
        let address = started();
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.0\nHost: 127.0.0.1:80\n\n", "200 OK"),
            ("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
            ("\u{0}\r\n\r\n", "400 Bad Request"),
        ] {
            let (line, body) = answer(address, request.as_bytes());
            assert_eq!(line, format!("HTTP/1.1 {status}"), "{request:?}");
            assert_eq!(body == "x 1\n", status == "200 OK", "{request:?}");
        }
        for path in ["/", "/metrics"] {
            let (line, body) = answer(address, format!("HEAD {path} HTTP/1.1\r\n\r\n").as_bytes());
            assert_eq!((line.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
        }
        assert!(answer(address, b"GET / HTTP/1.1\r\n\r\n").1.contains("href=\"/metrics\""));
        let (line, _) = answer(address, &[b'x'; MAX_HEAD + 1024]);
        assert!(line.contains("431"), "{line}");
    }

    #[test]
    fn other_names_of_the_loopback_address_are_refused() {
        let address = started();
        let status =
            |host: &str| answer(address, format!("GET /metrics HTTP/1.1\r\nhOST: {host}\r\n\r\n").as_bytes()).0;
        for own in ["localhost", "LOCALHOST:9477", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:9477"] {
            assert_eq!(status(own), "HTTP/1.1 200 OK", "{own}");
        }
        for foreign in ["rebound.example", "rebound.example:9477", "localhost.example", "127.0.0.2", "", "[::2]:1"] {
            assert_eq!(status(foreign), "HTTP/1.1 421 Misdirected Request", "{foreign}");
        }
        assert!(is_own_name("node7.example:9477", "0.0.0.0:9477".parse().ok()), "reached from elsewhere");
        assert!(is_own_name("127.0.0.2:9477", "127.0.0.2:9477".parse().ok()));
    }

    fn status_of(address: SocketAddr) -> String {
        answer(address, b"GET /metrics HTTP/1.1\r\n\r\n").0
    }

    #[test]
    fn connections_that_say_nothing_keep_nobody_away() {
        let address = started();
        let _silent: Vec<_> = (0..2 * MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(status_of(address), "HTTP/1.1 200 OK");
    }

    #[test]
    fn a_ninth_request_is_reported_to_come_again() {
        // Nine participants: the page function of eight requests waits until the ninth has been turned away.
        let all = Arc::new(std::sync::Barrier::new(MAX_CLIENTS + 1));
        let (begun, made) = std::sync::mpsc::channel();
        let address = {
            let all = Arc::clone(&all);
            serving(move || {
                let _ = begun.send(());
                all.wait();
                "x 1\n".to_owned()
            })
        };
        let asking: Vec<_> = (0..MAX_CLIENTS).map(|_| thread::spawn(move || status_of(address))).collect();
        (0..MAX_CLIENTS).for_each(|_| made.recv().unwrap());
        assert_eq!(status_of(address), "HTTP/1.1 503 Service Unavailable");
        all.wait();
        assert!(asking.into_iter().all(|thread| thread.join().unwrap() == "HTTP/1.1 200 OK"));
    }
}
