//! The layer around a service of tonic, seen by a client of tonic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use prost::Message;
use tidegate_tower::Protection;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::server::{Grpc as Server, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Layer;

/// One place, and nobody waits.
const ONE: &str = "mode = 'static'\nstatic = { share = 1.0 }\ntarget = '1s'\n\
                   limits = { slots = 1 }\nqueue = { max_requests = 0 }";

#[derive(Clone, PartialEq, Message)]
struct Word {
    #[prost(string, tag = "1")]
    text: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`, with the seconds of its `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Answers with the same word once it may.
#[derive(Clone)]
struct Echo(Arc<Semaphore>);

impl UnaryService<Word> for Echo {
    type Response = Word;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Word>, Status>> + Send>>;

    fn call(&mut self, request: Request<Word>) -> Self::Future {
        let may = Arc::clone(&self.0);
        Box::pin(async move {
            may.acquire().await.unwrap().forget();
            Ok(Response::new(request.into_inner()))
        })
    }
}

/// What tonic generates of a service with one method.
#[derive(Clone)]
struct Generated(Echo);

impl tower::Service<http::Request<Body>> for Generated {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.0.clone();
        Box::pin(async move {
            let mut server = Server::new(ProstCodec::<Word, Word>::default());
            Ok(server.unary(echo, request).await)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_client_is_told_when_to_come_back() {
    let epoch = Instant::now();
    let built = Protection::from_toml(ONE).unwrap();
    let (layer, _driver) = built.build_driven(move || epoch.elapsed()).unwrap();
    let may = Arc::new(Semaphore::new(0));
    let service = layer.layer(Generated(Echo(Arc::clone(&may))));
    let say = |text: &str| {
        let mut client = Client::new(service.clone());
        let word = Request::new(Word { text: text.into() });
        async move {
            client.ready().await.unwrap();
            let path = PathAndQuery::from_static("/test.Echo/Say");
            let answer = client.unary(word, path, ProstCodec::<Word, Word>::default());
            answer.await.map(|answer| answer.into_inner().text)
        }
    };
    let first = tokio::spawn(say("first"));
    while layer.status().replicas[0].in_flight == 0 {
        tokio::task::yield_now().await;
    }

    let refused = say("second").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let details = Details::decode(refused.details()).unwrap();
    assert_eq!(details.code, Code::ResourceExhausted as i32);
    assert_eq!(
        details.details[0].type_url,
        "type.googleapis.com/google.rpc.RetryInfo"
    );
    let info = RetryInfo::decode(&*details.details[0].value).unwrap();
    let retry_after = refused.metadata().get("retry-after").unwrap();
    let seconds: i64 = retry_after.to_str().unwrap().parse().unwrap();
    assert!(seconds > 0);
    let delay = info.retry_delay.unwrap();
    assert!(delay.seconds <= seconds && (delay.seconds, delay.nanos) > (0, 0));

    may.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), "first");
    assert_eq!(say("third").await.unwrap(), "third");
    assert_eq!(layer.status().replicas[0].in_flight, 0);
}
