//! Pushing the last numbers of a process to a Pushgateway.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use super::families::CONTENT_TYPE;
use super::node::Known;

/// For each part of the exchange.
const TIMEOUT: Duration = Duration::from_secs(5);
const PORT: u16 = 9091;

/// Where to push: `http://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    host: String,
    port: u16,
    prefix: String,
}

impl FromStr for Gateway {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected http://HOST[:PORT][/PREFIX]";
        let rest = text.strip_prefix("http://").ok_or(format!("{expected}; TLS is for a proxy on this node"))?;
        let (place, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if place.contains('@') {
            return Err(format!("{expected} without a user: other users can read a command line"));
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| expected.to_owned())?),
            _ => (place, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual =
            |text: &str| text.chars().all(|letter| letter.is_ascii_graphic() && !"\"<>\\^`{|}?#".contains(letter));
        if host.is_empty() || !usual(host) || !usual(prefix) {
            return Err(expected.to_owned());
        }
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { host: host.to_owned(), port, prefix })
    }
}

impl Gateway {
    /// Replaces what the gateway has of this process by `body`.
    ///
    /// # Errors
    /// When the gateway cannot be reached or does not take it, with its words.
    pub fn push(&self, process: &Known, body: &str) -> io::Result<()> {
        let places = (self.host.as_str(), self.port).to_socket_addrs()?;
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "this host has no address");
        for place in places {
            match TcpStream::connect_timeout(&place, TIMEOUT) {
                Ok(stream) => return self.exchange(stream, &self.target(process), body),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn target(&self, process: &Known) -> String {
        let labels = [
            ("run", process.numbers.run_label()),
            ("rank", process.numbers.rank_label()),
            ("Hostname", process.numbers.host.clone()),
        ];
        let number = (process.number > 1).then(|| ("process", process.number.to_string()));
        let labels = labels.into_iter().chain(number);
        let groups: String =
            labels.map(|(name, value)| format!("/{name}@base64/{}", base64(value.as_bytes()))).collect();
        format!("{}/metrics/job/gpuwhy{groups}", self.prefix)
    }

    fn exchange(&self, mut stream: TcpStream, target: &str, body: &str) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let head = format!(
            "PUT {target} HTTP/1.1\r\nHost: {host}:{}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if status.len() == 3 && status.starts_with('2') {
            return Ok(());
        }
        let said = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let said = said.lines().next().unwrap_or_default();
        Err(io::Error::other(format!("the gateway answers {status:?}: {said}")))
    }
}

/// RFC 4648, section 5, as the gateway reads label values in a path; `=` stands for an empty one.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if bytes.is_empty() {
        return "=".to_owned();
    }
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number =
            three.iter().enumerate().fold(0_u32, |sum, (index, &byte)| sum | u32::from(byte) << (16 - 8 * index));
        for place in 0..=three.len() {
            text.push(char::from(LETTERS[(number >> (18 - 6 * place)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_named_by_its_address() {
        let gateway = |text: &str| text.parse::<Gateway>();
        let parts = |host: &str, port, prefix: &str| Gateway { host: host.to_owned(), port, prefix: prefix.to_owned() };
        assert_eq!(gateway("http://gw"), Ok(parts("gw", PORT, "")));
        assert_eq!(gateway("http://[::1]:80/a/b/"), Ok(parts("::1", 80, "/a/b")));
        for bad in
            ["https://gw", "gw:9091", "http://", "http://u:p@gw", "http://gw:x", "http://g w", "http://gw/a\r\nb"]
        {
            assert!(gateway(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_values_in_a_path_are_those_of_the_rfc() {
        for (text, coded) in
            [("", "="), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy"), ("??>", "Pz8-")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }
}
