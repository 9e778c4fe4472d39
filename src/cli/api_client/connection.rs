//! A connection to a daemon: HTTP/1.1, one request after the other.

use std::{io, sync::Arc};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use super::{address::Address, tls};

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 128 << 20;

/// The longest head of an answer.
const LONGEST_HEAD: usize = 64 << 10;

/// The bytes of a connection, of whatever kind.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// An open connection.
pub(super) type Connection = Box<dyn Bytes>;

/// An HTTP answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// The connection can be used for another request.
    pub(super) keeps_alive: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection broke before any byte of the answer.
    Broken(io::Error),
    /// The answer is incomplete or not HTTP.
    Garbled(&'static str),
}

/// Connects, with TLS if there are settings for it. Returns the user at the other end of a Unix socket, too.
pub(super) async fn open(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<(Connection, Option<u32>)> {
    let stream = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let user = stream.peer_cred()?.uid();
            return Ok((Box::new(stream), Some(user)));
        }
        Address::Tcp(address) => TcpStream::connect(address).await?,
        Address::Url(url) => TcpStream::connect((url.host.as_str(), url.port)).await?,
    };
    // A request is one write, so there is nothing to gather.
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok((Box::new(stream), None)) };
    let host = address.name();
    let name = ServerName::try_from(host.clone()).map_err(|_| tls::no_name(&host))?;
    Ok((Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?), None))
}

/// Sends a request and reads the answer.
pub(super) async fn exchange(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin + ?Sized),
    request: &[u8],
) -> Result<Answer, Failure> {
    // A server may answer and close before it has read the whole request, so read even if the write
    // failed.
    let written = connection.write_all(request).await;
    match (read(connection).await, written) {
        (Err(Failure::Garbled(NO_HEAD)), Err(error)) => Err(Failure::Broken(error)),
        (answer, _) => answer,
    }
}

/// The answer ended before its head did.
pub(super) const NO_HEAD: &str = "the answer has no head";

async fn read(from: &mut (impl AsyncRead + Unpin + ?Sized)) -> Result<Answer, Failure> {
    let mut bytes = Vec::new();
    let end = loop {
        let before = bytes.len();
        match from.read_buf(&mut bytes).await {
            Err(error) if bytes.is_empty() => return Err(Failure::Broken(error)),
            Ok(0) | Err(_) => return Err(Failure::Garbled(NO_HEAD)),
            Ok(_) => {}
        }
        // The end may have begun in what was read before.
        let searched = before.saturating_sub(3);
        if let Some(at) = bytes[searched..].windows(4).position(|it| it == b"\r\n\r\n") {
            break searched + at;
        }
        if bytes.len() > LONGEST_HEAD {
            return Err(Failure::Garbled("the head of the answer is too long"));
        }
    };
    let head = Head::read(&bytes[..end]).map_err(Failure::Garbled)?;
    let mut body = bytes.split_off(end + 4);
    if head.is_chunked {
        let body = chunks(from, body).await.map_err(Failure::Garbled)?;
        return Ok(Answer { status: head.status, body, keeps_alive: !head.closes });
    }
    let length = head.length.unwrap_or(LONGEST_ANSWER);
    if length > LONGEST_ANSWER {
        return Err(Failure::Garbled("the answer is too long"));
    }
    let missing = length.saturating_sub(body.len());
    let read = from.take(missing as u64).read_to_end(&mut body).await;
    match (read, head.length) {
        (Ok(_), None) => {}
        (Ok(_), Some(length)) if length == body.len() => {}
        _ => return Err(Failure::Garbled("the answer is cut off")),
    }
    Ok(Answer { status: head.status, body, keeps_alive: head.length.is_some() && !head.closes })
}

/// Reads a body in chunks, as proxies send what they have gathered or rewritten. `bytes` is what was read of it before.
async fn chunks(
    from: &mut (impl AsyncRead + Unpin + ?Sized),
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, &'static str> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let end = line_end(from, &mut bytes, at).await?;
        let size = std::str::from_utf8(&bytes[at..end]).ok().and_then(|line| {
            // Extensions of a chunk follow a semicolon.
            usize::from_str_radix(line.split(';').next().unwrap_or(line).trim(), 16).ok()
        });
        let size = size.ok_or("a chunk of the answer has no size")?;
        at = end + 2;
        if size == 0 {
            break;
        }
        if size > LONGEST_ANSWER - body.len() {
            return Err("the answer is too long");
        }
        // With the line's end behind it.
        while bytes.len() < at + size + 2 {
            more(from, &mut bytes).await?;
        }
        body.extend_from_slice(&bytes[at..at + size]);
        bytes.drain(..at + size + 2);
        at = 0;
    }
    // Fields behind the body end with an empty line.
    loop {
        let end = line_end(from, &mut bytes, at).await?;
        if end == at {
            return Ok(body);
        }
        at = end + 2;
        if at > LONGEST_HEAD {
            return Err("the end of the answer is too long");
        }
    }
}

/// The place of the line's end at or behind `at`, after more is read if it is not there yet.
async fn line_end(
    from: &mut (impl AsyncRead + Unpin + ?Sized),
    bytes: &mut Vec<u8>,
    at: usize,
) -> Result<usize, &'static str> {
    loop {
        if let Some(end) = bytes[at..].windows(2).position(|it| it == b"\r\n") {
            return Ok(at + end);
        }
        if bytes.len() - at > LONGEST_HEAD {
            return Err("a line of the answer is too long");
        }
        more(from, bytes).await?;
    }
}

async fn more(from: &mut (impl AsyncRead + Unpin + ?Sized), bytes: &mut Vec<u8>) -> Result<(), &'static str> {
    match from.read_buf(bytes).await {
        Ok(0) | Err(_) => Err("the answer is cut off"),
        Ok(_) => Ok(()),
    }
}

/// The head of an answer, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// The body's. Without one the body ends with the connection.
    length: Option<usize>,
    /// The body comes in chunks.
    is_chunked: bool,
    /// The connection ends after the answer.
    closes: bool,
}

impl Head {
    fn read(head: &[u8]) -> Result<Self, &'static str> {
        let head = std::str::from_utf8(head).map_err(|_| "the head of the answer is not text")?;
        let mut lines = head.split("\r\n");
        let status =
            lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or("the answer is not HTTP")?;
        // Such an answer has no body, whatever its head says.
        let length = (status == 204).then_some(0);
        let mut found = Self { status, length, is_chunked: false, closes: head.starts_with("HTTP/1.0") };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                found.length = Some(value.parse().map_err(|_| "the answer is not HTTP")?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err("the answer has a coding that was not asked for");
                }
                found.is_chunked = status != 204;
            } else if name.eq_ignore_ascii_case("connection") {
                found.closes |= value.eq_ignore_ascii_case("close");
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    fn answer(mut text: &[u8]) -> Result<Answer, Failure> {
        block_on(read(&mut text))
    }

    fn garbled(text: &'static str) -> &'static str {
        match answer(text.as_bytes()) {
            Err(Failure::Garbled(problem)) => problem,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn an_answer_says_whether_its_connection_goes_on() {
        let read = |text: &'static str| {
            let Answer { status, body, keeps_alive } = answer(text.as_bytes()).unwrap();
            (status, body.len(), keeps_alive)
        };
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), (200, 2, true));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n"), (204, 0, true));
        assert_eq!(
            read("HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"),
            (503, 2, false)
        );
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n{}"), (200, 2, false));
        assert_eq!(read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), (200, 0, false));
    }

    #[test]
    fn an_answer_in_chunks_is_read_to_its_end() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
        let text =
            format!("{head}2;ext=1\r\n{{\"\r\n6\r\na\":[1]\r\n1\r\n}}\r\n0\r\nX-Trailer: y\r\n\r\nrest");
        let found = answer(text.as_bytes()).unwrap();
        assert_eq!((&found.body[..], found.keeps_alive), (&b"{\"a\":[1]}"[..], true));
    }

    #[test]
    fn incomplete_answers_are_errors() {
        assert_eq!(garbled("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}"), "the answer is cut off");
        assert_eq!(garbled("HTTP/1.1 200 OK\r\nContent-Length: 3"), NO_HEAD);
        assert_eq!(garbled(""), NO_HEAD);
        for other in
            ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: x\r\n\r\n"]
        {
            assert_eq!(garbled(other), "the answer is not HTTP", "{other:?}");
        }
        assert_eq!(
            garbled("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n"),
            "the answer is too long"
        );
        for (body, problem) in [
            ("2\r\n{}\r\n", "the answer is cut off"),
            ("2\r\n{", "the answer is cut off"),
            ("x\r\n{}\r\n0\r\n\r\n", "a chunk of the answer has no size"),
            ("fffffffffffffff\r\n{}", "the answer is too long"),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(garbled(text.leak()), problem, "{body:?}");
        }
        assert!(garbled("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n").contains("coding"));
        let endless = vec![b'x'; LONGEST_HEAD + 1];
        assert!(matches!(answer(&endless), Err(Failure::Garbled("the head of the answer is too long"))));
    }
}
