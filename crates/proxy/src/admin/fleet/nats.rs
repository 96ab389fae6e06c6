//! Reports through a bucket of NATS JetStream.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_nats::{Bucket, Server, Watched, bucket_name, key_name};
use tokio::time::timeout;

use super::FleetNode;
use super::carrier::{Carrier, Unanswered, patience};
use crate::config::Nats;

/// Time between two attempts to reach a server.
const RETRY: Duration = Duration::from_secs(1);

/// The bucket of a fleet; opened anew after every error.
pub(super) struct Store {
    config: Nats,
    bucket: Bucket,
    session: Option<Watched>,
    tried: Option<Instant>,
    trouble: String,
    patience: Duration,
}

impl Store {
    pub(super) fn new(config: &Nats, node: &FleetNode) -> Self {
        let bucket = Bucket {
            name: bucket_name(&node.config.name),
            key: key_name(&node.proxy),
            replicas: config.replicas.into(),
            ttl: *node.config.hold,
        };
        Self {
            config: config.clone(),
            bucket,
            session: None,
            tried: None,
            trouble: String::new(),
            patience: patience(node),
        }
    }

    /// What is in the files is read each time: passwords are renewed.
    fn server(&self) -> Result<Server, String> {
        let config = &self.config;
        let certificate = config.client_cert.clone().zip(config.client_key.clone());
        Ok(Server {
            urls: config.urls.clone(),
            user: config.read_user()?,
            credentials_file: config.credentials_file.clone(),
            ca_file: config.ca.clone(),
            certificate,
        })
    }

    async fn open(&mut self, report: Bytes) -> Result<(), String> {
        if self.tried.is_some_and(|at| at.elapsed() < RETRY) {
            return Err(self.trouble.clone());
        }
        let server = self.server()?;
        let opened = Watched::open(&server, &self.bucket, report).await;
        // After the attempt, which may take long.
        self.tried = Some(Instant::now());
        self.session = Some(opened.map_err(|error| error.to_string())?);
        Ok(())
    }

    async fn put(&mut self, report: Bytes) -> Result<(), String> {
        let Some(session) = &mut self.session else {
            return self.open(report).await;
        };
        let put = match timeout(self.patience, session.put(report)).await {
            Ok(put) => put.map_err(|error| error.to_string()),
            Err(_) => Err("the server does not answer".to_owned()),
        };
        put.inspect_err(|_| self.session = None)
    }
}

impl Carrier for Store {
    async fn exchange(&mut self, report: Bytes) -> Result<Vec<Bytes>, Unanswered> {
        match self.put(report).await {
            // What others say comes by itself.
            Ok(()) => Ok(Vec::new()),
            Err(why) => {
                self.trouble.clone_from(&why);
                Err(Unanswered::Declined(why))
            }
        }
    }

    async fn incoming(&mut self) -> Bytes {
        if let Some(session) = &mut self.session {
            match session.next().await {
                Ok(report) => return report,
                // The next report opens another one.
                Err(_) => self.session = None,
            }
        }
        std::future::pending().await
    }

    fn disbelieved(&self, why: &str) -> String {
        format!(
            "a report in bucket `{}` of NATS is not believed: {why}",
            self.bucket.name
        )
    }

    fn declined(&self, why: &str) -> String {
        format!("no reports through NATS: {why}")
    }

    fn is_server(&self) -> bool {
        true
    }
}
