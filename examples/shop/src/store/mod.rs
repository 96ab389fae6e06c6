//! The shop's data: products, orders, and everything that was ever bought, in SQLite.
//!
//! Several replicas may share one file. Each request that needs data runs on a thread of its own
//! with a connection of its own, and as many of them at once as threads are allowed.

mod pool;
mod queries;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::capacity::{VirtualCost, VirtualServer};
use crate::error::ShopError;
use pool::Pool;
pub(crate) use queries::{Order, Product, Selection};

/// How a shop is set up.
#[derive(Debug, Clone, Default)]
pub struct ShopConfig {
    /// Where its data is; a file of its own that goes with it when `None`.
    pub database: Option<PathBuf>,
    /// Orders of the past to begin with, when the database is new.
    pub past_orders: u32,
    /// CPU time that recommendations should take, on average over all products: their query is
    /// repeated as often as that needs.
    pub recommendation_cost: Option<Duration>,
    /// What product pages cost on a server that exists only on paper, if there is one.
    pub virtual_cost: Option<VirtualCost>,
}

/// A shop that is open.
#[derive(Debug, Clone)]
pub struct Shop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    /// How often the query of recommendations is run for each page.
    passes: u32,
    on_paper: Option<VirtualServer>,
    /// Removed with the shop.
    _folder: Option<TempDir>,
}

impl Shop {
    /// Opens it; fills the database when that is new.
    ///
    /// # Errors
    /// The database cannot be opened, or is not one of a shop.
    pub fn open(config: &ShopConfig) -> Result<Self, ShopError> {
        let (file, folder) = match &config.database {
            Some(file) => (file.clone(), None),
            None => {
                let folder = tempfile::tempdir()?;
                (folder.path().join("shop.sqlite"), Some(folder))
            }
        };
        let pool = Pool::new(file);
        let passes = pool.with(|connection| {
            queries::set_up(connection, config.past_orders)?;
            match config.recommendation_cost {
                Some(cost) => passes(connection, cost),
                None => Ok(1),
            }
        })?;
        let shared = Arc::new(Shared {
            pool,
            passes,
            on_paper: config.virtual_cost.map(VirtualServer::new),
            _folder: folder,
        });
        Ok(Self { shared })
    }

    /// How often the query of recommendations is run for each page.
    #[must_use]
    pub fn passes(&self) -> u32 {
        self.shared.passes
    }

    /// Runs queries where they may take their time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ShopError> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || shared.pool.with(work));
        Ok(done.await??)
    }

    /// Some products, and how many there are in all.
    pub(crate) async fn products(
        &self,
        selection: Selection,
    ) -> Result<(Vec<Product>, u32), ShopError> {
        self.run(move |connection| queries::products(connection, &selection))
            .await
    }

    /// A product, and what others bought with it unless that is to be left out.
    pub(crate) async fn product(
        &self,
        id: i64,
        full: bool,
    ) -> Result<Option<(Product, Option<Vec<Product>>)>, ShopError> {
        let passes = self.shared.passes;
        if let Some(server) = &self.shared.on_paper {
            server.serve(full).await;
        }
        self.run(move |connection| {
            let Some(product) = queries::product(connection, id)? else {
                return Ok(None);
            };
            let others = full.then(|| recommendations(connection, id, passes));
            Ok(Some((product, others.transpose()?)))
        })
        .await
    }

    /// The products of a basket with their quantities; those that are not sold are left out.
    pub(crate) async fn lines(
        &self,
        lines: Vec<(i64, u32)>,
    ) -> Result<Vec<(Product, u32)>, ShopError> {
        self.run(move |connection| queries::lines(connection, &lines))
            .await
    }

    /// Places an order and returns its reference.
    pub(crate) async fn place(
        &self,
        buyer: String,
        lines: Vec<(i64, u32)>,
    ) -> Result<String, ShopError> {
        self.run(move |connection| queries::place(connection, &buyer, &lines))
            .await
    }

    /// The order with that reference.
    pub(crate) async fn order(&self, reference: String) -> Result<Option<Order>, ShopError> {
        self.run(move |connection| queries::order(connection, &reference))
            .await
    }
}

fn recommendations(
    connection: &Connection,
    id: i64,
    passes: u32,
) -> rusqlite::Result<Vec<Product>> {
    for _ in 1..passes {
        queries::recommendations(connection, id)?;
    }
    queries::recommendations(connection, id)
}

/// How many passes take `cost` on this machine, by the CPU time of this thread: neighbours do not
/// count.
fn passes(connection: &Connection, cost: Duration) -> rusqlite::Result<u32> {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let ids = queries::product_ids(connection)?;
    let before = used();
    for &id in &ids {
        queries::recommendations(connection, id)?;
    }
    let one = (used() - before).as_secs_f64() / ids.len() as f64;
    // `as` saturates; without any product there is nothing to recommend either.
    Ok(((cost.as_secs_f64() / one).round() as u32).max(1))
}
