//! One HTTP/1.1 connection that is kept, for reports.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::carrier::Unanswered;
use crate::config::Secret;

/// Where reports are posted.
#[derive(Debug)]
pub(super) struct Post {
    /// Host and port.
    pub(super) authority: String,
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) token: Option<Secret>,
    /// Longest answer that is read.
    pub(super) answer_bytes_max: usize,
    pub(super) sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Post {
    /// The answer, where it is a success.
    pub(super) async fn send(&mut self, body: Bytes) -> Result<Bytes, Unanswered> {
        // One that fails is not used again.
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let answer = sender.send_request(self.request(body)?).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), self.answer_bytes_max);
        let body = body.collect().await.map_err(|_| Unanswered::Lost)?;
        let body = body.to_bytes();
        self.sender = Some(sender);
        if status.is_success() {
            return Ok(body);
        }
        Err(Unanswered::Declined(refusal(status, &body)))
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, Unanswered> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // How it ends shows when the next report is sent.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, Unanswered> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, self.content_type);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request.body(Full::new(body));
        request.map_err(|_| Unanswered::Lost)
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    format!("{status}: {}", text.trim_end())
}
