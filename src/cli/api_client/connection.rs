//! A connection to a daemon: HTTP/1.1, one request after the other.

use std::{
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use super::{address::Address, tls};
use crate::base::causes::with_causes;

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 128 << 20;

/// Why a longer answer is refused.
const TOO_LONG: &str = "the answer is too long";

/// The longest head of an answer.
const LONGEST_HEAD: usize = 64 << 10;

/// A request, of which the whole body is known.
pub(super) type WholeRequest = Request<Full<Bytes>>;

/// An open connection. Dropped, it closes.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes, while a request is awaited; `None` once the connection has ended.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// An HTTP answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection broke.
    Broken(io::Error),
    /// The answer is incomplete or not HTTP.
    Garbled(&'static str),
}

/// Connects, with TLS if there are settings for it. Nothing is sent yet. Returns the user at the other end of a Unix socket, too.
pub(super) async fn open(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<(Connection, Option<u32>)> {
    let stream = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let user = stream.peer_cred()?.uid();
            return Ok((Connection::over(stream).await?, Some(user)));
        }
        Address::Tcp(address) => TcpStream::connect(address).await?,
        Address::Url(url) => TcpStream::connect((url.host.as_str(), url.port)).await?,
    };
    // A request is one write, so there is nothing to gather.
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok((Connection::over(stream).await?, None)) };
    let host = address.name();
    let name = ServerName::try_from(host.clone()).map_err(|_| tls::no_name(&host))?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
    Ok((Connection::over(stream).await?, None))
}

impl Connection {
    async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> io::Result<Self> {
        let settings = http1::Builder::new().max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(stream));
        let (sender, driver) = settings.await.map_err(io::Error::other)?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Whether another request can be sent on it.
    pub(super) fn is_open(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Sends a request and reads the answer.
    pub(super) async fn exchange(&mut self, request: WholeRequest) -> Result<Answer, Failure> {
        let Self { sender, driver } = self;
        let mut answer = pin!(async {
            sender.ready().await.map_err(|error| failure(&error))?;
            let sent = sender.send_request(request).await;
            read(sent.map_err(|error| failure(&error))?).await
        });
        poll_fn(|context| {
            if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
                *driver = None;
            }
            let answer = answer.as_mut().poll(context);
            // What ends with the answer, such as a connection that the server closes, is noted at once.
            if answer.is_ready()
                && driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready())
            {
                *driver = None;
            }
            answer
        })
        .await
    }
}

async fn read(answer: Response<Incoming>) -> Result<Answer, Failure> {
    let status = answer.status().as_u16();
    if answer.body().size_hint().lower() > LONGEST_ANSWER as u64 {
        return Err(Failure::Garbled(TOO_LONG));
    }
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map_err(|error| {
        Failure::Garbled(if error.is::<LengthLimitError>() { TOO_LONG } else { "the answer is cut off" })
    })?;
    Ok(Answer { status, body: body.to_bytes() })
}

/// The answer ended before its head did.
pub(super) const NO_HEAD: &str = "the answer has no head";

/// Why there is no head of an answer.
fn failure(error: &hyper::Error) -> Failure {
    if error.is_incomplete_message() {
        Failure::Garbled(NO_HEAD)
    } else if error.is_parse() {
        Failure::Garbled("the answer is not HTTP")
    } else {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let kind = cause.map_or(io::ErrorKind::Other, io::Error::kind);
        Failure::Broken(io::Error::new(kind, with_causes(error)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What a client makes of this answer, and whether the connection goes on.
    async fn exchange(answer: &[u8]) -> (Result<Answer, Failure>, bool) {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut connection = Connection::over(ours).await.unwrap();
        let request = Request::get("/").body(Full::default()).unwrap();
        let server = async {
            let read = theirs.read(&mut [0; 1_024]).await.unwrap();
            assert!(read > 0);
            theirs.write_all(answer).await.unwrap();
            // An answer without a length ends with its connection.
            theirs.shutdown().await.unwrap();
        };
        let (answer, ()) = tokio::join!(connection.exchange(request), server);
        (answer, connection.is_open())
    }

    async fn answer(text: &str) -> (u16, usize) {
        let Answer { status, body } = exchange(text.as_bytes()).await.0.unwrap();
        (status, body.len())
    }

    async fn garbled(text: &[u8]) -> &'static str {
        match exchange(text).await.0 {
            Err(Failure::Garbled(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_are_read_to_their_ends() {
        assert_eq!(answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await, (200, 2));
        assert_eq!(answer("HTTP/1.1 204 No Content\r\n\r\n").await, (204, 0));
        assert_eq!(
            answer("HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await,
            (503, 2)
        );
        assert_eq!(answer("HTTP/1.1 200 OK\r\n\r\n{}").await, (200, 2));
        assert_eq!(answer("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").await, (200, 0));
        let chunks = "2;ext=1\r\n{\"\r\n6\r\na\":[1]\r\n1\r\n}\r\n0\r\nX-Trailer: y\r\n\r\n";
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n{chunks}");
        assert_eq!(answer(&text).await, (200, 9));
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closes_is_not_open() {
        let (answer, is_open) =
            exchange(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await;
        assert!(answer.is_ok() && !is_open);
    }

    #[tokio::test]
    async fn incomplete_answers_are_errors() {
        let cut_off = "the answer is cut off";
        assert_eq!(garbled(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}").await, cut_off);
        for broken in ["HTTP/1.1 200 OK\r\nContent-Length: 3", ""] {
            assert_eq!(garbled(broken.as_bytes()).await, NO_HEAD, "{broken:?}");
        }
        for other in
            ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
        {
            assert_eq!(garbled(other.as_bytes()).await, "the answer is not HTTP", "{other:?}");
        }
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n";
        assert_eq!(garbled(long).await, TOO_LONG);
        for body in ["2\r\n{}\r\n", "2\r\n{", "x\r\n{}\r\n0\r\n\r\n"] {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(garbled(text.as_bytes()).await, cut_off, "{body:?}");
        }
        let head = [b"HTTP/1.1 200 OK\r\nX: ", &[b'x'; LONGEST_HEAD][..]].concat();
        assert_eq!(garbled(&head).await, "the answer is not HTTP");
    }

    #[tokio::test]
    async fn an_answer_that_comes_before_the_whole_request_is_read_counts() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut connection = Connection::over(ours).await.unwrap();
        let request = Request::post("/").body(Full::new(Bytes::from(vec![b'x'; 1 << 20]))).unwrap();
        let server = async {
            let read = theirs.read(&mut [0; 1_024]).await.unwrap();
            assert!(read > 0);
            theirs.write_all(b"HTTP/1.1 413 x\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            drop(theirs);
        };
        let (answer, ()) = tokio::join!(connection.exchange(request), server);
        assert_eq!(answer.unwrap().status, 413);
        // The rest of the request was not sent, so nothing else can be.
        assert!(!connection.is_open());
    }
}
